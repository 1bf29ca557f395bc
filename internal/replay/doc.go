// Package replay shows the effect of evictions on jobs: it lets a fleet of VMs live and die as
// recorded or synthetic lives say, and jobs run on it, in virtual time.
//
// The decisions are the worker's own code: when a state is saved is [checkpoint.Policy]
// with the losses that a worker of that fleet would have observed, the deadlines of a drain
// come from package drain, and the pace of renewals and polls from their constants. Around
// them is a model, which [Run] documents. It has no storage and no processes: a week of a
// thousand VMs takes seconds.
//
//	lives     when each VM is paid for, takes work, has its notice, and is gone
//	scenario  the fleet, the jobs and the policy
//	run       the events: jobs become visible, VMs claim them, runs end
//	attempt   one run of a job on a VM, save by save
//	report    the use of the paid time
//	page      the same as a page with pictures
package replay
