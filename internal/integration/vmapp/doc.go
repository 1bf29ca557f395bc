// Package vmapp installs the package of make package on a machine that systemd
// booted, as the platform would, and tells its story: installed, healthy, running jobs,
// killed, updated in the middle of a job, evicted, removed, and what goes wrong on
// the way. The machine is a container with a network of its own, in which there
// is nothing but this test and a local Azure.
//
// What Microsoft's two extensions do there is done by stand-ins (extension_test.go,
// probe_test.go), because the modules of the real ones could not be had where this
// was written. They keep to the order of actions that the extensions' source
// shows, and to what the extensions did when they were run once against a package.
// docs/first-run.md says what that leaves open.
//
// Its tests are built with the tag integration; see make integration.
package vmapp
