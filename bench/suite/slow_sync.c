/* Loaded with LD_PRELOAD: every sync of a file takes BENCH_SYNC_US microseconds longer than the disk needs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

static void wait_longer(void)
{
    const char *asked = getenv("BENCH_SYNC_US");
    long micros = asked ? atol(asked) : 0;
    struct timespec pause = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

int fsync(int file)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    wait_longer();
    return real(file);
}

int fdatasync(int file)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    wait_longer();
    return real(file);
}

int msync(void *start, size_t bytes, int flags)
{
    int (*real)(void *, size_t, int) = dlsym(RTLD_NEXT, "msync");
    wait_longer();
    return real(start, bytes, flags);
}
