// Package protocol is the REST protocol of Azure Storage as both services speak it:
// requests and what they may ask for, replies and refusals, XML, metadata, names and
// pages of listings. It keeps no state: what a request does is the business of packages
// blobs and queues, and who may send it that of package storage.
package protocol
