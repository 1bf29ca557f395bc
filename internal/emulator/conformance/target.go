package conformance

import (
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Clock says how a case gets time to pass.
type Clock int

const (
	// NoTime leaves out the cases that must wait.
	NoTime Clock = iota
	// VirtualTime runs every case in a testing/synctest bubble. The target
	// must be in process, since nothing in a bubble may wait for a socket.
	VirtualTime
	// RealTime makes the cases wait, for a second or two each.
	RealTime
)

// Target is a storage account to run the suite on.
type Target struct {
	// ConnectionString holds the account's name, key and endpoints. Required.
	ConnectionString string
	// Transport replaces the SDK's HTTP client. Default: the SDK's own.
	Transport policy.Transporter
	// Clock says how time passes. Default: NoTime.
	Clock Clock
	// Lax lists where the target is known to accept more than Azure.
	Lax []Laxity
}

// Laxity names a fact of Azure that a target is known not to hold.
type Laxity string

// Azurite lists the laxities of Azurite 3.37.0.
func Azurite() []Laxity {
	return []Laxity{
		MetadataEmptyValues, MetadataSize, NamesAsWritten, BlobNameLength,
		PutBlobKeepsStaged, CommittedBlockIDLength, RangeAtTheEnd, UncommittedDelete,
	}
}

// run executes one case the way the target's clock asks for.
func (tg Target) run(t *testing.T, c testCase) {
	e := newEnv(t, tg)
	switch {
	case tg.Clock == VirtualTime:
		synctest.Test(t, func(t *testing.T) { c.check(t, e) })
	case c.waits:
		t.Parallel()
		c.check(t, e)
	default:
		c.check(t, e)
	}
}

// Run checks every fact of the suite on the target.
func Run(t *testing.T, tg Target) {
	t.Helper()
	for _, group := range [][]testCase{
		queueCases, messageCases, limitCases, visibilityCases,
		containerCases, conditionCases, leaseCases, readCases, rangeCases, blockCases, metadataCases, listCases, nameCases, raceCases, keyCases,
	} {
		for _, c := range group {
			if c.waits && tg.Clock == NoTime {
				continue
			}
			t.Run(c.fact, func(t *testing.T) { tg.run(t, c) })
		}
	}
}

// testCase is one fact and how to check it.
type testCase struct {
	fact  string // what the case is named after
	waits bool   // needs time to pass
	check func(t *testing.T, e *env)
}
