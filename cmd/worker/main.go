// Command worker does jobs from an Azure Storage queue on an evictable VM.
// Run it with --help for its flags.
package main

import "github.com/spotworker/spotworker"

// version is set by the linker.
var version = "devel"

func main() {
	spotworker.Version = version
	spotworker.Main(nil)
}
