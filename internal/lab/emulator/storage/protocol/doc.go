// Package protocol is the REST protocol of Azure Storage that both services share:
// requests and their parameters, replies and refusals, XML, metadata, names and pages of
// listings. It keeps no state: packages blobs and queues have the effects of requests,
// and package storage decides who may send them.
package protocol
