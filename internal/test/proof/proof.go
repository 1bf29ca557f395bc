// Package proof decides how much of a long test runs. make test and make integration run a
// quick part of it, make nightly all of it: all crash points, many histories, hours of virtual
// time, gigabytes. SPOTWORKER_PROOF=full chooses all of a single test too:
//
//	SPOTWORKER_PROOF=full go test ./internal/test/worker/crashpoints -run TestEveryCall/short
package proof

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/spotworker/spotworker/internal/test/race"
)

// Environment variables: Variable is "full" for all of each test. SeedVariable repeats the
// sample of a quick run.
const (
	Variable     = "SPOTWORKER_PROOF"
	SeedVariable = "SPOTWORKER_SEED"
)

// Full reports whether all of each test runs.
func Full() bool { return os.Getenv(Variable) == "full" }

// Times returns how often a test repeats something, or with how many.
func Times(quick, full int) int {
	if Full() {
		return full
	}
	return quick
}

// Some returns all rows of a table or, for a quick run, a sample in the same order.
func Some[T any](t testing.TB, quick int, rows []T) []T {
	t.Helper()
	if Full() || quick >= len(rows) {
		return rows
	}
	chosen := rand.New(rand.NewPCG(Seed(t), 0)).Perm(len(rows))[:quick]
	slices.Sort(chosen)
	sample := make([]T, quick)
	for i, n := range chosen {
		sample[i] = rows[n]
	}
	return sample
}

// Only skips a test that has no quick part. The reason says what takes so long, or which
// test is its quick part.
func Only(t testing.TB, reason string) {
	t.Helper()
	if !Full() {
		t.Skipf("make nightly runs it: %s", reason)
	}
}

// WithoutRace skips a test that cannot run under the race detector, or would only be slow there
// since it has one goroutine.
func WithoutRace(t testing.TB, reason string) {
	t.Helper()
	if race.Enabled {
		t.Skipf("only without the race detector: %s", reason)
	}
}

// Seed returns the seed of the samples in this process, and logs it. It is 1 in a quick run, so
// that a change is judged by the same tests each time, and random in full.
func Seed(t testing.TB) uint64 {
	t.Helper()
	t.Logf("the sample of this run: %s=%d", SeedVariable, seed)
	return seed
}

var seed = func() uint64 {
	if given, err := strconv.ParseUint(os.Getenv(SeedVariable), 10, 64); err == nil {
		return given
	}
	if Full() {
		return rand.Uint64()
	}
	return 1
}()
