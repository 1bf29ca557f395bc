// Package imds emulates the Azure instance metadata service: instance metadata,
// scheduled events and tokens for many VMs at once, with the real service's errors and
// limits, and methods that schedule and change events.
//
// On Azure every VM asks one fixed address and the host knows who is asking.
// Here each VM has a base path of its own, /vms/<name>, under which the real
// paths follow:
//
//	GET  /vms/web_0/metadata/instance/compute?api-version=2021-02-01
//	GET  /vms/web_0/metadata/scheduledevents?api-version=2020-07-01
//	POST /vms/web_0/metadata/scheduledevents?api-version=2020-07-01
//	GET  /vms/web_0/metadata/identity/oauth2/token?api-version=2018-02-01&resource=…
//	GET  /vms/web_0/msi/token?api-version=2019-08-01&resource=…
//
// The last is App Service's form of the one before it, which the Azure SDKs use when
// the environment names it: see [Guest.IdentityEnvironment].
//
// [Server.Handler] serves all of them on one port. [Guest.RoundTripper] is the
// same for one VM without sockets; it works inside a testing/synctest bubble,
// and all waiting there is in virtual time.
//
// # The life of an event
//
//	              NotBefore passes, POST StartRequests, or Start
//	Schedule ──▶ Scheduled ─────────────────────────────────▶ Started
//	                 │                                            │
//	                 └── Withdraw ──▶ (not listed) ◀── Complete ──┘
//
// An event is shown to every VM of each scale set that one of its Resources
// belongs to. Each change raises the DocumentIncarnation of those scale sets. A
// VM outside any scale set is alone in its document.
//
// # What is not known
//
// Sizes, statuses and fields are as documented. The texts of most error bodies
// are not documented and are ours; no client should read them. Whether calls
// fail or wait while the service is being switched on is not documented either:
// here they wait.
package imds
