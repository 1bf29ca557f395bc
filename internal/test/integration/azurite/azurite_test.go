//go:build integration

package azurite_test

import (
	"testing"

	"github.com/spotworker/spotworker/internal/lab/emulator/conformance"
	"github.com/spotworker/spotworker/internal/test/integration/azurite"
)

// TestConformance holds Azurite to the same facts as the embedded emulator, but
// for the laxities that the suite lists.
func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Target{
		ConnectionString: azurite.Start(t),
		Clock:            conformance.RealTime,
		Lax:              conformance.Azurite(),
	})
}
