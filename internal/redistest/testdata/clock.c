/*
 * Preloaded into a redis-server, this moves its clock by as many microseconds
 * as stand, as an int64_t, in the file that REDISTEST_CLOCK names. The monotonic
 * clock stays: a clock that steps does not change how fast time passes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	void *at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		_exit(127);
	close(fd);
	offset = at;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	long failed = syscall(SYS_clock_gettime, id, ts);

	if (!failed && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t us = ts->tv_sec * INT64_C(1000000) + ts->tv_nsec / 1000 + *offset;

		ts->tv_sec = us / 1000000;
		ts->tv_nsec = us % 1000000 * 1000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;

	(void)tz;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (at)
		*at = ts.tv_sec;
	return ts.tv_sec;
}
