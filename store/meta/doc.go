// Package meta keeps topics, subscription groups and consumer offsets in RocketMQ's config/*.json.
//
// Start with [Open]: it reads the three files of a config directory and hands out [Topics], [Groups] and [Offsets].
// Reads of topics and groups take no lock and allocate nothing: a table is an immutable map that a change replaces.
//
// # Files
//
//	topics.json             {"dataVersion":{...},"topicConfigTable":{NAME:{...}}}
//	subscriptionGroup.json  {"dataVersion":{...},"forbiddenTable":{...},"subscriptionGroupTable":{NAME:{...}}}
//	consumerOffset.json     {"dataVersion":{...},"offsetTable":{"TOPIC@GROUP":{"QUEUE":OFFSET}}}
//
// They are what a RocketMQ broker writes and reads (spec/store.md 1.3), with fields in alphabetical order. RocketMQ
// leaves integer keys without quotes; both forms are read, and quoted ones are written, so that the files are JSON that
// any tool reads and RocketMQ's parser still accepts. Fields we do not know are kept, in the file and in each entry.
//
// A file is replaced by: write its present content to NAME.bak and the new one to NAME, each as NAME.tmp, fsync, rename;
// then fsync the directory. A crash at any point leaves a whole NAME and a whole NAME.bak. A file that cannot be read as
// JSON at open is renamed to NAME.damaged-MILLIS, its backup is used, and [Config].Damaged is told; the good backup is
// not touched until a good main file exists again. With both unreadable the table starts empty, and Damage.Lost says so.
//
// # What is durable when
//
// Put of a topic or group returns when the file is on the disk; concurrent changes share one write. Committed offsets
// are in memory until [Offsets.Persist].
package meta
