// Package mapping turns Notify messages into the fields of RocketMQ records and back, by the table of docs/mapping.md.
//
// [Store] makes sysFlag, born time and property text of a header that a Notify client sent; [Load] makes the header
// that a Notify subscriber gets of any record, whoever produced it. Both work on buffers of the caller: Store appends
// to one and Load fills a header that aliases the record and the Loader, so neither allocates for ordinary messages.
//
// A Notify message survives both ways: every field of MessageHeader comes back or is one that the server sets itself.
// No header of a Notify message can become a property that RocketMQ acts upon. A RocketMQ record is never changed.
//
// [Group] does the same for group names.
package mapping
