"""Bugs in the client of jobs and in the worker."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

WORKERS = (
    bug(
        "client-claim-without-an-id",
        "a claim whose answer was lost is repeated, and gets the same leases",
        "client/jobs/lease_calls.py",
        '            "claim_id": fresh_name() if claim_id is None else claim_id,\n',
        '            "claim_id": claim_id,\n',
        "tests/client/test_lost_answers.py::test_every_call_of_a_lease_can_lose_its_answer",
    ),
    bug(
        "client-requeue-runs-twice",
        "a requeue whose answer was lost has no second effect",
        "client/jobs/admin_calls.py",
        "                if job.revision > known:\n",
        "                if job.revision < known:\n",
        "tests/client/test_jobs_admin.py::test_a_requeue_whose_answer_is_lost_runs_the_job_again_once",
    ),
    bug(
        "client-group-members-without-keys",
        "the same group again is completed and not doubled",
        "client/jobs/calls.py",
        "        base = fresh_name() if join.key is None else join.key\n",
        "        base = fresh_name()\n",
        "tests/client/test_job_groups.py::test_the_same_group_again_is_completed_and_not_doubled",
    ),
    bug(
        "worker-process-not-killed",
        "a process whose lease is lost is killed",
        "client/worker/attempt.py",
        "        if self._held.lost.done():\n            self._kill()\n",
        "        if self._held.lost.done():\n",
        "tests/client/test_processes.py::test_a_process_whose_lease_is_lost_is_killed",
    ),
    bug(
        "worker-limit-goes-on",
        "a time limit ends the renewal of a lease",
        "client/worker/lease_keeper.py",
        "            async with asyncio.timeout(self._limit):\n",
        "            async with asyncio.timeout(None):\n",
        "tests/client/test_lease_keeper.py::test_a_time_limit_ends_the_renewal_of_a_job_that_blocks_its_worker",
    ),
    bug(
        "worker-processes-outlive-their-worker",
        "the processes of a worker that is killed end at once",
        "client/worker/child.py",
        "            os._exit(1)  # also",
        "            return  # also",
        "tests/client/test_processes.py::test_a_worker_that_is_killed_leaves_no_process_and_its_job_runs_again",
    ),
    bug(
        "worker-step-done-again",
        "a step that is stored is not done again",
        "client/worker/job.py",
        "            known = self._steps.known(step_key)\n            if not known.known:\n",
        "            known = self._steps.known(step_key)\n            if known is not None:\n",
        "tests/client/test_worker_killed.py::test_a_job_survives_its_worker_at[step-kept]",
    ),
    bug(
        "worker-own-backoff-ignored",
        "a failed run is repeated after the pause that its function asks for",
        "client/worker/attempt.py",
        "            pause = self._backoff()\n",
        "            pause = None\n",
        "tests/client/test_job_functions.py::test_backoff_is_a_number_a_list_or_a_function_of_the_attempt",
    ),
    bug(
        "worker-params-not-checked",
        "params are checked by their types before they are sent",
        "client/worker/signature.py",
        "            return kind.encode(value)\n",
        "            return value\n",
        "tests/client/test_param_types.py",
    ),
    bug(
        "worker-defaults-stored",
        "params have what was passed and no defaults",
        "client/worker/signature.py",
        "            bound = self.public.bind(*args, **kwargs).arguments\n",
        "            given = self.public.bind(*args, **kwargs)\n"
        "            given.apply_defaults()\n"
        "            bound = given.arguments\n",
        "tests/client/test_param_types.py",
    ),
    bug(
        "worker-parent-does-not-wait",
        "a parent that waits is not claimed before its children have ended",
        "client/worker/attempt.py",
        "wait_children=report.wait_children\n",
        "wait_children=False\n",
        "tests/client/test_job_groups.py::test_a_parent_gives_itself_back_until_its_children_have_ended",
    ),
    bug(
        "worker-token-in-the-outbox",
        "the token is not stored with a submission in the caller's transaction",
        "client/worker/outbox.py",
        '        headers["Authorization"] = EnvSecret(TOKEN, "Bearer ")\n',
        '        headers["Authorization"] = f"Bearer {access.token}"\n',
        "tests/client/test_submit_in.py",
    ),
)
