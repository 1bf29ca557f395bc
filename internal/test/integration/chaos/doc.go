// Package chaos kills real worker processes, on the storage emulator and on
// Azurite (lab chaos). It consists of tests only.
package chaos
