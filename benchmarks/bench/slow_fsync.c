/* Makes durable writes take longer, as on a slower disk: loaded with LD_PRELOAD before the C library.
   BENCH_FSYNC_MS says how many milliseconds more; every call is counted. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long calls;

unsigned long bench_fsyncs(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

static void wait_longer(void)
{
    const char *given = getenv("BENCH_FSYNC_MS");
    double ms = given ? atof(given) : 0.0;
    struct timespec rest;
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (ms <= 0.0)
        return;
    rest.tv_sec = (time_t)(ms / 1000.0);
    rest.tv_nsec = (long)((ms - 1000.0 * (double)rest.tv_sec) * 1e6);
    nanosleep(&rest, NULL);
}

int fsync(int fd) { wait_longer(); return (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { wait_longer(); return (int)syscall(SYS_fdatasync, fd); }
