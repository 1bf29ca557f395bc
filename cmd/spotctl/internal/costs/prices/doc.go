// Package prices finds out what Spot VMs cost and how often they are evicted: for VM
// sizes and regions, from five sources of Azure.
//
//	source               gives                              needs
//	retail prices        Spot and regular price             nothing
//	Resource Graph       price history, eviction rate       sign-in, Reader on a subscription
//	VM sizes             cores, whether Spot is offered     Reader on the subscription
//	quota                cores of Spot VMs: used, limit     Reader on the subscription
//	placement scores     chance to get VMs now              Compute Recommendations Role
//
// [Gather] asks all of them at once. A source that fails leaves a [Gap], which names the
// missing data, the reason, and the remedy; the other sources are still shown. Nothing is
// changed in the subscription.
//
// The number of requests is small: sizes and regions are asked for in batches, as large as the
// service takes.
package prices
