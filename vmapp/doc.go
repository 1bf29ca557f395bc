// Package vmapp holds the files of a package beside the worker: the scripts that
// the VM application extension runs, and the systemd units. docs/deploy.md tells an
// operator what runs when.
//
// The facts about the platform that the scripts rely on, and how they handle them:
//
//   - The extension runs a command under /bin/sh as root, in a folder of the
//     version, and asks for its exit code once. A version that failed is not tried
//     again, and is reported as a success from then on. So a script says in its exit
//     code and last line what went wrong, and leaves a unit behind that retries.
//   - It runs the command even if it could not fetch the package or the
//     configuration, or only a part of it. So the package has checksums, and worker.env
//     has a last line that must be there.
//   - A reboot or an eviction may interrupt it at any moment. So a release is unpacked
//     beside the others and appears by one rename. Until the script has ended, a unit
//     repeats it at the next boot, since the extension does not always.
//   - A worker that has read its configuration is ready, even if it reaches no service.
//     A script waits only for that: roles, networks and storage can take long.
//   - If an update does not start, the script restores the previous version, since a
//     VM without a worker does no work.
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
