// Package cli holds the common parts of the commands: the flags for storage and logs, exit
// codes, and how errors are printed.
//
// A setting is a flag, else the environment variable SPOTWORKER_ and the flag's
// name, else the default. The storage account's secrets come from the
// environment alone, since every user of a machine can read command lines.
//
// A log reader cannot block a program. A line is written before the call that logs it returns. A
// line that is not read within 50 ms goes to a buffer of 1 MiB; beyond that lines are dropped and
// counted. A closed pipe or a full disk behind the log ends nothing.
package cli
