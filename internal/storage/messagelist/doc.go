// Package messagelist decodes the messages that the queue service returns for a
// claim.
//
// The SDK decodes them with encoding/xml, which takes a tenth of all CPU time of a
// short job. This package reads only the form in which the service, Azurite and the
// emulator write such a list: elements without attributes, each at most once, whose
// text is plain ASCII without entities. For anything else, however slight the
// difference, it returns nothing, and the SDK decodes the list as it would have.
//
// [Policy] is part of the queue client's pipeline, and decodes the responses of calls
// whose context comes from [List.In].
package messagelist
