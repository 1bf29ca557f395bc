// Package vmpackage makes the packages that install the worker on VMs: an archive
// for each system and processor architecture with the worker, optional programs for jobs in
// other languages, and the files of package vmapp.
//
//	spotworker-linux-amd64.tar.gz       the package
//	spotworker-linux-amd64.tar.gz.sig   its signature, if there is a key
//	spotworker-windows-amd64.zip        the same for Windows
//	spotworker-linux-amd64.cdx.json     its bill of materials (CycloneDX), also inside
//	SHA256SUMS                          of all files beside it
//
// The same source, Go version and settings give the same bytes, on any machine and
// in any folder: the binary has neither paths nor times of the build in it, and
// files in the archive have one time (the commit's time), no owners, two modes and
// an order. With the source, anyone can verify the content of a package.
//
// A release is named after the version and the digest of the package's content. Two
// packages of one name are therefore the same, and a VM can hold a version and its
// successor during an update.
//
// Bills of materials and licence texts are made here: syft is no module, and
// google/go-licenses guesses.
package vmpackage
