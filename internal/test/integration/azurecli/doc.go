// Package azurecli runs the commands that lab up prints, among them commands for the real
// Azure CLI, unchanged, in a network of its own without a route out. Its tests are built
// with the tag integration; see make integration.
package azurecli
