// Package vmapp installs the package of make package on a machine that systemd
// booted, as the platform would: installed, healthy, running jobs, killed, updated in
// the middle of a job, evicted, removed, and the faults on the way. The machine is a
// container with a network of its own, in which there is only this test and a local
// Azure. The archive and the Debian packages of a release are installed there too.
//
// Microsoft's two extensions are replaced by stand-ins (extension_test.go,
// probe_test.go), because the modules of the real ones were not available where this
// was written. They follow the order of actions in the extensions' source, and the
// behaviour of the extensions when they were run once against a package.
// docs/deploy.md lists the open questions.
//
// Its tests are built with the tag integration; see make integration.
package vmapp
