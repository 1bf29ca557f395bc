// Package wine runs our Windows programs under Wine: a worker with its jobs, and the
// unit tests of the packages that differ on Windows. It is built with the tag
// integration; see make integration.
//
// Each test has a Windows of its own ([New]): a registry, drives and processes that
// no other test sees. They share the folder C:\windows, which no test may change.
//
// A process under Wine is a process of this system, and a path of this system is one
// of drive Z ([Windows.Path]). A kill is a kill on both.
package wine
