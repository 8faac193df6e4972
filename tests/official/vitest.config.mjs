import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["conformance.test.mjs"],
    // A busy two-core machine is slow, not wrong: the suite's own time limits still decide what is late.
    testTimeout: 30_000,
  },
})
