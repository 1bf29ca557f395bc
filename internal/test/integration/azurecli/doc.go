// Package azurecli runs the commands that lab up prints, those for the real Azure CLI
// among them, unchanged, in a network of its own without a route out. Its tests are built with the tag integration; see make integration.
package azurecli
