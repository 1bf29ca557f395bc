// Package vmapp is what comes onto a VM beside the worker: the scripts that the
// VM application extension runs, and the systemd units. docs/vmapp.md tells an
// operator what runs when.
//
// What the scripts rely on, and what they make of it:
//
//   - The extension runs a command under /bin/sh as root, in a folder of the
//     version, and asks for its exit code once. A version that failed is not tried
//     again, and is reported as a success from then on. So a script says in its exit
//     code and last line what went wrong, and leaves a unit behind that retries.
//   - It runs the command also where it could not fetch the package or the
//     configuration, or only half of it. So the package has checksums, and worker.env
//     has a last line that must be there.
//   - It may be cut off at any moment, by a reboot or an eviction. So a release is
//     unpacked beside the others and appears by one rename; and until the script has
//     ended, a unit runs it again at the next boot, since the extension does so only
//     sometimes.
//   - A worker whose configuration can be read is ready, whatever it reaches. So
//     a script waits for that and no longer: roles, networks and storage may take
//     their time.
//   - An update that does not start is put back, since a VM with the version before
//     does work and one without a worker does not.
//
// On the VM:
//
//	/opt/spotworker/VERSION-DIGEST/   a release: bin/worker, handlers/, units; read-only
//	/opt/spotworker/current           link to the one that the units start
//	/opt/spotworker/.started          link to the one that was started, the same unless a script was cut off
//	/etc/spotworker/worker.env        settings; root's, since systemd reads it
//	/var/log/spotworker/              one JSON object a line; rotated at 100 MB by a timer of the package's
//	/var/cache/spotworker/            folders of the jobs' programs
//	/run/spotworker/                  what the workers of the VM share
package vmapp
