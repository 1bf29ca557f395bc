// Package cli holds what the commands have in common: the flags for storage and
// logs, how errors end a program, and how they read.
//
// A setting is a flag, else the environment variable SPOTWORKER_ and the flag's
// name, else the default. The storage account's secrets come from the
// environment alone, since command lines are visible to everybody on a machine.
package cli
