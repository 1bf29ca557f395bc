// Package winsetup installs, updates and removes the worker on a VM that runs
// Windows. It corresponds to the scripts of package vmapp for Linux, and keeps
// their rules:
//
//   - A release is a folder named after its content. It is copied beside the others
//     and appears by one rename, so a running worker keeps its programs to its end.
//     The service's command line names the release; there is no link to switch.
//   - An update that does not start is undone, since a VM without a worker does no
//     work.
//   - A worker that has read its configuration counts as started, even if it reaches
//     no other service yet: roles, networks and storage can take long.
//   - Until an installation has ended, a service repeats it at the next boot, since
//     the VM application extension does not always.
//   - A step that fails because Windows holds a file open for a moment, as virus
//     scanners do, is tried again for a while.
//
// On the VM:
//
//	%ProgramFiles%\spotworker\VERSION-DIGEST\   a release: worker.exe, handlers\
//	%ProgramFiles%\spotworker\started           name of the release that was started last
//	%ProgramData%\spotworker\worker.env         settings
//	%ProgramData%\spotworker\logs\worker.log    one JSON object a line
//	%ProgramData%\spotworker\scratch\           folders of the jobs' programs
//	%ProgramData%\spotworker\run\               what the workers of the VM share
package winsetup
