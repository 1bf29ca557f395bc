package vmapp

import "embed"

// Files are the scripts, units and settings of a package, in folders of these
// names. internal/vmpackage puts them into an archive with the worker.
//
//go:embed scripts/*.sh units/* etc/*
var Files embed.FS

// WindowsPackageFile is the name under which the package for Windows has to
// arrive.
const WindowsPackageFile = "spotworker.zip"

// The commands of the VM application's version for Windows. The extension runs each
// of them with cmd /C as SYSTEM, in the folder that package and configuration
// arrived in. tar.exe, which unpacks zip archives too, is part of Windows since
// Windows Server 2019. The worker installs itself: package winsetup.
//
// If this version's worker could not be unpacked, Remove uses the worker of the version
// that runs. If none runs, there is nothing to do.
const (
	WindowsInstall = `%SystemRoot%\System32\tar.exe -xf ` + WindowsPackageFile + ` && .\worker.exe package install`
	WindowsUpdate  = `%SystemRoot%\System32\tar.exe -xf ` + WindowsPackageFile + ` && .\worker.exe package update`
	WindowsRemove  = `if exist worker.exe (.\worker.exe package remove) else if exist "%ProgramData%\spotworker\remove.cmd" ` +
		`(copy /y "%ProgramData%\spotworker\remove.cmd" remove.cmd >nul && .\remove.cmd)`
)

// CloudInit is user data for an existing machine.
//
//go:embed cloud-init.yaml
var CloudInit string

// PackageFile is the name under which the package has to arrive: the packageFileName
// of the VM application's version.
const PackageFile = "spotworker.tar.gz"

// ConfigurationFile is the name of the file with settings: its configFileName.
const ConfigurationFile = "worker.env"

// The commands of the VM application's version. The extension runs each of them
// under /bin/sh as root, in the folder that package and configuration arrived in.
//
// If this version's scripts could not be unpacked, Remove uses the scripts of the version
// that runs. If none runs, there is nothing to do.
const (
	Install = "tar -xzf " + PackageFile + " && sh ./install.sh"
	Update  = "tar -xzf " + PackageFile + " && sh ./update.sh"
	Remove  = "for script in ./remove.sh /opt/spotworker/current/remove.sh; do [ ! -f $script ] || exec sh $script; done"
)
