// Package arm emulates as much of Azure Resource Manager as the unmodified Azure
// CLI needs to find and evict a VM of the emulated metadata service:
//
//	az cloud register  GET  /metadata/endpoints
//	az login           GET  /adfs/.well-known/openid-configuration
//	                   POST /adfs/oauth2/token
//	                   GET  /subscriptions
//	az vm list         GET  /subscriptions/…/virtualMachines
//	az vm show         GET  /subscriptions/…/virtualMachines/…
//	az vm simulate-eviction, az vmss simulate-eviction
//	                   POST /subscriptions/…/simulateEviction
//
// Each VM of an [imds.Server] is here under the resource id that its metadata shows:
// instances of a Uniform scale set as its children, all others
// as VMs of their own, so that only one of the two commands finds a VM, as on
// Azure. The reply is 204; the Preempt follows after [Options.EvictionDelay].
//
// # What it is not
//
// It keeps no resources and checks no roles. A VM that it shows has no network
// interfaces, and runs: a VM that is gone is not listed. Another operation on a known VM gets
// 501, since a client takes 404 to mean that the VM is gone; any other path gets 404.
// Every application may sign in with any secret: a program that reaches a loopback
// port is on this machine already. A call without a token of this server is refused,
// as on Azure.
//
// Clients sign in as with AD FS, which they use for Azure Stack Hub: its authority is
// this server, and a client does not verify the authority with Microsoft.
//
// # What is not known
//
// The codes of ARM's own errors (authentication, api-version, subscription,
// resource group, resource) are documented; their texts here are ours. That a VM
// of regular priority is refused is tested by the Azure CLI's own tests; with
// which code is not documented, and here it is 409 OperationNotAllowed. The answer to a
// second eviction of a VM, while the first is under way, is not documented either: here
// 204, and no second Preempt.
package arm
