// Package vmpackage makes the packages that the worker comes onto VMs in:
// one archive for each processor architecture, with the worker, perhaps programs
// for jobs in other languages, and what is in package vmapp.
//
//	spotworker-linux-amd64.tar.gz       the package
//	spotworker-linux-amd64.tar.gz.sig   its signature, if there is a key
//	spotworker-linux-amd64.cdx.json     its bill of materials (CycloneDX), also inside
//	SHA256SUMS                          of all files beside it
//
// The same source, Go version and settings give the same bytes, on any machine and
// in any folder: the binary has neither paths nor times of the build in it, and
// files in the archive have one time, that of the commit, no owners, two modes and
// an order. So whoever has the source can check what a package was made of.
//
// A package names its release: the version, and the digest of everything in it.
// Two packages of one name are therefore the same, and a VM can have both a
// version and its successor while it changes from one to the other.
package vmpackage
