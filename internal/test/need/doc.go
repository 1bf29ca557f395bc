// Package need skips tests that need something that the machine lacks. No other package
// skips tests, except [github.com/spotworker/spotworker/internal/test/proof] for lack of time.
//
// A skip names the missing part. With CI=true the test fails instead, so that CI never
// proves less than it claims. The exceptions are the constants of type [Part]: CI's machine
// cannot have these parts, and docs/proof.md lists them as not tested in CI.
package need
