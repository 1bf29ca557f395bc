// Package azurecli pastes what lab up prints into shells, word for word, the
// commands for the real Azure CLI among it, in a network of its own that leads
// nowhere. Its tests are built with the tag integration; see make integration.
package azurecli
