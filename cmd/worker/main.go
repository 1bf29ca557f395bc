// Command worker does jobs from an Azure Storage queue on an evictable VM.
// Run it with --help for its flags.
package main

import "github.com/spotworker/spotworker"

func main() { spotworker.Main(nil) }
