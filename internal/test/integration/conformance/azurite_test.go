//go:build integration

package conformance

import (
	"testing"

	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestAzurite holds Azurite 3.37.0 to the same facts as the embedded emulator, but
// for the laxities in the list.
func TestAzurite(t *testing.T) {
	run(t, target{
		connectionString: azurite.Start(t),
		clock:            realTime,
		lax: []laxity{
			metadataEmptyValues, metadataUnlimited, namesAsWritten, blobNameLength,
			putBlobKeepsStaged, committedBlockIDLength, rangeAtTheEnd, uncommittedDelete,
		},
	})
}
