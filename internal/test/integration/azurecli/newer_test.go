//go:build integration && linux

package azurecli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spotworker/spotworker/internal/test/integration/namespace"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// TestNewerAzureCLI evicts workers as TestAzureCLI does, with a newer Azure CLI.
func TestNewerAzureCLI(t *testing.T) {
	namespace.Run(t, prepareNewer, func(t *testing.T) {
		evictions(t, func(t *testing.T) { evictInstance(t) })
	})
}

// TestDocumentedCommandsRunNewer does what TestDocumentedCommandsRun does, with a newer
// Azure CLI.
func TestDocumentedCommandsRunNewer(t *testing.T) {
	namespace.Run(t, prepareNewer, documentedCommandsRun)
}

// prepareNewer puts the Azure CLI that tools/azure-cli.sh unpacks before all others in PATH.
func prepareNewer(t *testing.T) []string {
	folder := filepath.Join(repository.Root(t), ".tools", "azure-cli")
	if _, err := os.Stat(filepath.Join(folder, "mark")); err != nil {
		need.Missing(t, "a newer Azure CLI in .tools")
	}
	return append(programs(t), "PATH="+folder+":"+os.Getenv("PATH"))
}
