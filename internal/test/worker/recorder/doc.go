// Package recorder records what reaches the emulated storage in a test and holds it
// against the rules of the oracle (docs/proof.md). It stands outside the system: it sees
// every call at the moment of its effect and reads storage then, and believes no worker.
package recorder
