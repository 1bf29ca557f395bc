//go:build integration && linux

package snapshots

import (
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// sleepers is a program whose children always wait, each in another system call. It reports waits
// that ended with an error, or too early, and semaphores that lost their value meanwhile.
const sleepers = `
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static const long wait_ns = 300000000;
static int ends[2];
static struct timespec span(void) { return (struct timespec){0, wait_ns}; }
static struct timespec after(clockid_t clock) {
	struct timespec t; clock_gettime(clock, &t);
	t.tv_nsec += wait_ns; if (t.tv_nsec >= 1000000000) { t.tv_sec++; t.tv_nsec -= 1000000000; }
	return t;
}
static int expect(int result, int error) { return result < 0 && errno == error ? 0 : -1; }
static int with_nanosleep(void) { struct timespec t = span(); return nanosleep(&t, NULL); }
static int with_rest(void) { struct timespec t = span(); return nanosleep(&t, &t); }
static int with_poll(void) { struct pollfd f = {ends[0], POLLIN, 0}; return poll(&f, 1, wait_ns / 1000000); }
static int with_select(void) { struct timeval t = {0, wait_ns / 1000}; return select(0, NULL, NULL, NULL, &t); }
static int with_epoll(void) {
	static int e; struct epoll_event v;
	if (!e) e = epoll_create1(0);
	return epoll_wait(e, &v, 1, wait_ns / 1000000);
}
static int with_futex(void) {
	int word = 0; struct timespec t = span();
	return expect(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t), ETIMEDOUT);
}
static int with_semaphore(void) {
	sem_t s; sem_init(&s, 0, 0); struct timespec t = after(CLOCK_REALTIME);
	return expect(sem_timedwait(&s, &t), ETIMEDOUT);
}
static int with_signal(void) {
	sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, NULL);
	struct timespec t = span(); return expect(sigtimedwait(&s, NULL, &t), EAGAIN);
}
static struct { const char *name; int (*wait)(void); } all[] = {
	{"nanosleep", with_nanosleep}, {"nanosleep with a rest", with_rest}, {"poll", with_poll}, {"select", with_select},
	{"epoll", with_epoll}, {"futex", with_futex}, {"semaphore", with_semaphore}, {"signal", with_signal},
};
static double now(int i) { // the semaphore waits for an absolute time of the calendar
	struct timespec t; clock_gettime(all[i].wait == with_semaphore ? CLOCK_REALTIME : CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9;
}
int main(void) {
	int said[2], n = sizeof all / sizeof *all, got, size = 0;
	char line[200], faults[4000] = "none";
	if (pipe(ends) || pipe(said)) return 1;
	for (int i = 0; i < n; i++) {
		if (fork()) continue;
		while (access("finish", F_OK)) {
			snprintf(line, sizeof line, "/wait%d", i); // memory that nothing can open: the init stops the child for it
			sem_t *held = sem_open(line, O_CREAT | O_EXCL, 0600, 1);
			sem_unlink(line);
			double begun = now(i); errno = 0;
			int result = all[i].wait(), error = errno;
			double took = now(i) - begun;
			if (sem_trywait(held)) result = -2;
			sem_close(held);
			if (result == 0 && took >= wait_ns / 1e9 - 0.05) continue;
			got = snprintf(line, sizeof line, "%s: %d (%s) after %.2f s; ", all[i].name, result, strerror(error), took);
			if (write(said[1], line, got) != got) return 1;
		}
		return 0;
	}
	close(said[1]);
	puts("running"); fflush(stdout);
	while ((got = read(said[0], faults + size, sizeof faults - 1 - size)) > 0) faults[size += got] = 0;
	for (int i = 0; i < n; i++) wait(NULL);
	FILE *out = fopen(getenv("SPOTWORKER_RESULT"), "w");
	fputs(faults, out);
	return fclose(out);
}
`

// TestWaits: no wait of a program ends early or with an error by its snapshots, while it continues
// and on the next VM.
func TestWaits(t *testing.T) {
	proof.Only(t, "TestPythonWithAnOpenFile is the quick part")
	withCRIU(t)
	t.Parallel()
	k := program.Kind{Name: "sleepers", Command: []string{compiled(t, sleepers)}, Snapshot: true}
	var state []byte
	for range 2 {
		r := newMachine(t, nil).begin(k, state, 100*time.Millisecond)
		r.untilRunning(state)
		for range 2 {
			before := r.Latest()
			r.until("a snapshot", func() bool { return r.Latest().HasState() && !r.Latest().SameState(before) })
		}
		state = r.evict()
	}
	if got := newMachine(t, nil).finish(k, state); got != "none" {
		t.Errorf("waits that a snapshot ended: %s", got)
	}
}
