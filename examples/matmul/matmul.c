/*
 * Product of two matrices: an interruptible job with a large state, in C.
 *
 * The payload is two numbers in text: the matrices' order, a multiple of 64, and
 * a seed that they are made from. The result is the product's trace and the sum
 * of its elements.
 *
 * The product is computed in bands of rows, each a file that never changes once
 * it is there. A checkpoint is a folder of all bands so far, made of hard links,
 * which costs nothing here; and of the folder only the new band is sent, because
 * what did not change since the last checkpoint is in storage already.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 64, LATER = 75, MAX_ORDER = 8192 };

static volatile sig_atomic_t stopping;

static void on_term(int number)
{
	(void)number;
	stopping = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static const char *env(const char *name)
{
	const char *text = getenv(name);
	if (text == NULL) {
		fprintf(stderr, "%s is not set: this program is run by spotworker\n", name);
		exit(1);
	}
	return text;
}

static FILE *open_or_fail(const char *name, const char *mode)
{
	FILE *file = fopen(name, mode);
	if (file == NULL)
		fail(name);
	return file;
}

static void close_or_fail(FILE *file, const char *name)
{
	int bad = ferror(file);
	if (fclose(file) != 0 || bad)
		fail(name);
}

static void pause_ms(long ms)
{
	struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&wait, NULL);
}

/* element makes an element of a matrix from its place, between -1 and 1. */
static double element(unsigned long seed, unsigned long row, unsigned long column)
{
	unsigned long x = seed * 0x9E3779B97F4A7C15UL + row * 0xBF58476D1CE4E5B9UL + column * 0x94D049BB133111EBUL;
	x ^= x >> 31;
	x *= 0xD6E8FEB86659FD93UL;
	x ^= x >> 32;
	return (double)(x >> 11) / 4503599627370496.0 - 1.0;
}

static void band_name(char *name, size_t size, const char *folder, int band)
{
	snprintf(name, size, "%s/%04d.f64", folder, band);
}

/* finished counts the bands that are there. */
static int finished(int bands)
{
	char name[64];
	for (int band = 0; band < bands; band++) {
		band_name(name, sizeof name, "bands", band);
		if (access(name, R_OK) != 0)
			return band;
	}
	return bands;
}

/* compute makes one band of the product, and puts it in place whole. */
static void compute(int order, unsigned long seed, int band, const double *right, double *rows)
{
	memset(rows, 0, sizeof *rows * ROWS * order);
	for (int i = 0; i < ROWS; i++) {
		double *to = rows + (size_t)i * order;
		for (int k = 0; k < order; k++) {
			double left = element(seed, (unsigned long)band * ROWS + i, k);
			const double *from = right + (size_t)k * order;
			for (int j = 0; j < order; j++)
				to[j] += left * from[j];
		}
	}
	char name[64];
	band_name(name, sizeof name, "bands", band);
	FILE *file = open_or_fail("band.new", "wb");
	fwrite(rows, sizeof *rows, (size_t)ROWS * order, file);
	close_or_fail(file, "band.new");
	if (rename("band.new", name) != 0)
		fail(name);
}

/*
 * save puts a folder with links to all bands in place. A folder can be put there
 * only when the worker has taken the last one away: if it has not, this one is
 * left out, or waited for when it is the last.
 */
static void save(int bands, int last)
{
	const char *place = env("SPOTWORKER_CHECKPOINT");
	char folder[4096], from[64], to[4200];
	while (access(place, F_OK) == 0) {
		if (!last)
			return;
		pause_ms(20);
	}
	snprintf(folder, sizeof folder, "%s/checkpoint", env("TMPDIR"));
	if (mkdir(folder, 0700) != 0)
		fail(folder);
	for (int band = 0; band < bands; band++) {
		band_name(from, sizeof from, "bands", band);
		band_name(to, sizeof to, folder, band);
		if (link(from, to) != 0)
			fail(to);
	}
	if (rename(folder, place) != 0)
		fail(place);
}

static void tell(int band, int bands)
{
	const char *name = env("SPOTWORKER_PROGRESS");
	FILE *file = open_or_fail(name, "a");
	fprintf(file, "{\"fraction\": %.4f, \"text\": \"%d of %d bands\"}\n", (double)band / bands, band, bands);
	close_or_fail(file, name);
}

/* result adds up the bands, which are all there. */
static void result(int order, int bands, double *rows)
{
	double trace = 0, sum = 0;
	char name[64];
	for (int band = 0; band < bands; band++) {
		band_name(name, sizeof name, "bands", band);
		FILE *file = open_or_fail(name, "rb");
		if (fread(rows, sizeof *rows, (size_t)ROWS * order, file) != (size_t)ROWS * order)
			fail(name);
		close_or_fail(file, name);
		for (int i = 0; i < ROWS; i++) {
			trace += rows[(size_t)i * order + band * ROWS + i];
			for (int j = 0; j < order; j++)
				sum += rows[(size_t)i * order + j];
		}
	}
	FILE *file = open_or_fail("result", "w");
	fprintf(file, "{\"trace\": %.10g, \"sum\": %.10g}\n", trace, sum);
	close_or_fail(file, "result");
	if (rename("result", env("SPOTWORKER_RESULT")) != 0)
		fail("result");
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_term};
	sigaction(SIGTERM, &action, NULL);

	int order;
	unsigned long seed;
	FILE *payload = open_or_fail(env("SPOTWORKER_PAYLOAD"), "r");
	if (fscanf(payload, "%d %lu", &order, &seed) != 2 || order <= 0 || order > MAX_ORDER || order % ROWS != 0) {
		fprintf(stderr, "payload: want an order, a multiple of %d up to %d, and a seed\n", ROWS, MAX_ORDER);
		return 1;
	}
	close_or_fail(payload, "payload");

	const char *restored = getenv("SPOTWORKER_RESTORE");
	if (restored != NULL ? rename(restored, "bands") : mkdir("bands", 0700))
		fail("bands");
	double *right = malloc(sizeof *right * order * order), *rows = malloc(sizeof *rows * ROWS * order);
	if (right == NULL || rows == NULL)
		fail("memory for the matrices");
	for (int i = 0; i < order; i++)
		for (int j = 0; j < order; j++)
			right[(size_t)i * order + j] = element(seed + 1, i, j);

	const char *text = getenv("PAUSE_MS"); /* to have time for an eviction */
	long pause = text != NULL ? atol(text) : 0;
	int bands = order / ROWS;
	for (int band = finished(bands); band < bands; band++) {
		if (stopping) {
			save(band, 1);
			return LATER;
		}
		compute(order, seed, band, right, rows);
		save(band + 1, 0);
		tell(band + 1, bands);
		pause_ms(pause);
	}
	result(order, bands, rows);
	free(right);
	free(rows);
	return 0;
}
