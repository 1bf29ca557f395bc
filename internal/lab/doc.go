// Package lab is shared by the commands of `lab`: an Azure on loopback, and real worker
// processes on simulated VMs.
//
//   - [Local] is a storage account, a metadata service and a resource manager.
//   - [Fleet] starts workers, each on a [VM] of its own, and ends them. It refuses
//     to start a process that could reach anything beyond this machine.
//   - [Build] and [Producer] make and run the programs under test.
//   - [Choose], [Upload] and [Pace] make jobs of files of this machine.
//
// The commands are packages below this one, and none imports another:
//
//   - demo evicts, kills and freezes workers in the middle of real work and
//     measures the promises.
//   - trial runs a person's program, evicts it again and again, and says whether it
//     is interruptible.
//   - up is a local Azure for a person, until Ctrl-C.
//   - imds is a metadata service alone, which plays a scenario.
//   - chaos does what demo does at random, for as long as wanted.
//
// Demo and chaos take place on a stage (package stage), which records what happens to jobs, and
// package oracle judges that.
package lab
