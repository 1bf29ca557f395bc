// Package cli holds what the commands share: the flags for storage and logs, exit
// codes, and how errors are printed.
//
// A setting is a flag, else the environment variable SPOTWORKER_ and the flag's
// name, else the default. The storage account's secrets come from the
// environment alone, since every user of a machine can read command lines.
package cli
