package httpapi

import "time"

// The types below are the wire: encoding/json writes them, and the OpenAPI document is made from them. A field's doc tag
// is its description there. The client in sdk-go/admin has types of its own; its tests compare both.

// Status is what a broker says about itself.
type Status struct {
	Version       string            `json:"version" doc:"Version of the program."`
	GoVersion     string            `json:"goVersion" doc:"Version of Go that it was built with."`
	PID           int               `json:"pid" doc:"Process id."`
	Started       time.Time         `json:"started" doc:"When the process began to serve."`
	UptimeSeconds int64             `json:"uptimeSeconds" doc:"Seconds since then."`
	Ready         bool              `json:"ready" doc:"Whether everything serves, as /readyz has it."`
	Profile       string            `json:"profile" doc:"Set of defaults: dev or production."`
	Security      string            `json:"security" doc:"Who may do what. none: everyone who reaches a port may do everything."`
	Cluster       string            `json:"cluster" doc:"Cluster that the broker registers under."`
	Broker        string            `json:"broker" doc:"Name of the broker."`
	Advertised    string            `json:"advertised" doc:"host:port that clients are told to connect to; the host is * when each client is told the address through which it came."`
	Data          string            `json:"data" doc:"Directory of the data, as an absolute path."`
	Listeners     map[string]string `json:"listeners" doc:"host:port of every open listener, by name."`
	Store         StoreStatus       `json:"store" doc:"The log."`
	Counts        Counts            `json:"counts" doc:"How many there are of what."`
	Memory        Memory            `json:"memory" doc:"Memory of the process."`
}

// StoreStatus is where the log stands. Positions are bytes from the start of the log.
type StoreStatus struct {
	MinPosition        int64  `json:"minPosition" doc:"First byte that is still kept."`
	MaxPosition        int64  `json:"maxPosition" doc:"Next byte to be written."`
	SyncedPosition     int64  `json:"syncedPosition" doc:"First byte that may not be on disk yet."`
	DispatchedPosition int64  `json:"dispatchedPosition" doc:"First byte that the views may not cover yet."`
	Problem            string `json:"problem,omitempty" doc:"Why no message is taken: the disk failed or is full. Absent while all is well."`
	Flush              string `json:"flush" doc:"When a send is acknowledged, for topics that do not say: async or sync."`
}

// Counts are numbers of things.
type Counts struct {
	Topics            int `json:"topics" doc:"Topics that users made; system topics are left out."`
	PullGroups        int `json:"pullGroups" doc:"Consumer groups that pull."`
	PushGroups        int `json:"pushGroups" doc:"Groups that are pushed to."`
	BrokerConnections int `json:"brokerConnections" doc:"Open connections on the broker's ports."`
	NotifyConnections int `json:"notifyConnections" doc:"Open connections on the Notify port."`
}

// Memory is what the process uses.
type Memory struct {
	AnonymousBytes int64 `json:"anonymousBytes" doc:"Resident memory that belongs to the process alone; the page cache is not in it."`
	HeapBytes      int64 `json:"heapBytes" doc:"Go heap in use."`
	LimitBytes     int64 `json:"limitBytes" doc:"Size at which the garbage collector works harder."`
}

// Topic is one topic.
type Topic struct {
	Name        string `json:"name" doc:"Name."`
	ReadQueues  int32  `json:"readQueues" doc:"Queues that consumers read."`
	WriteQueues int32  `json:"writeQueues" doc:"Queues that producers write."`
	Perm        string `json:"perm" doc:"r, w or rw; - for neither."`
	Durability  string `json:"durability" doc:"When a send is acknowledged: memory, async or sync."`
	System      bool   `json:"system" doc:"Whether the system made it for itself."`
	Messages    int64  `json:"messages" doc:"Messages that can be read, over all queues."`

	Idempotent    bool              `json:"idempotent" doc:"Whether a message of a RocketMQ producer that comes again under its unique id is stored once. Those on the Notify wire always are."`
	UntilConsumed string            `json:"untilConsumed,omitempty" doc:"How long messages are kept for push groups that have not read them, beyond the age limit, as in 36h. Absent: no longer than others."`
	Order         bool              `json:"order" doc:"RocketMQ's order flag: clients get the queues of the topic in an order of their own."`
	Attributes    map[string]string `json:"attributes,omitempty" doc:"Other attributes, which RocketMQ's tools set and show."`
}

// TopicDetail is one topic with its queues.
type TopicDetail struct {
	Topic
	Queues []Queue `json:"queues" doc:"Queues that ever had a message."`
}

// Queue is one queue of a topic.
type Queue struct {
	ID        int32 `json:"id" doc:"Number of the queue."`
	MinOffset int64 `json:"minOffset" doc:"First offset that can be read."`
	MaxOffset int64 `json:"maxOffset" doc:"Next offset to be given."`
}

// TopicPage is a part of the list of topics.
type TopicPage struct {
	Topics []Topic `json:"topics" doc:"In order of their names."`
	Next   string  `json:"next,omitempty" doc:"Value of after for the next page; absent on the last one."`
}

// NewTopic asks for a topic.
type NewTopic struct {
	Name       string `json:"name" required:"true" doc:"1 to 127 letters, digits, -, _, % and |."`
	Queues     int32  `json:"queues,omitempty" doc:"Read and write queues. Default: broker.default-queues."`
	Perm       string `json:"perm,omitempty" doc:"r, w or rw. Default: rw."`
	Durability string `json:"durability,omitempty" doc:"memory, async or sync. Default: store.flush."`

	Idempotent    bool   `json:"idempotent,omitempty" doc:"See Topic."`
	UntilConsumed string `json:"untilConsumed,omitempty" doc:"A duration of at most 168h, or true for that. Default: no longer than others."`
	Order         bool   `json:"order,omitempty" doc:"See Topic."`
}

// TopicChange says what is to be another way, as a merge patch does (RFC 7396): what is absent stays as it is, and null brings back the default
// where there is one.
type TopicChange struct {
	ReadQueues    *int32             `json:"readQueues,omitempty" doc:"Queues that consumers read, 1 to 16384. Messages in queues beyond them are not read until it grows again."`
	WriteQueues   *int32             `json:"writeQueues,omitempty" doc:"Queues that producers write, 1 to 16384."`
	Perm          *string            `json:"perm,omitempty" doc:"r, w, rw, or - for neither."`
	Durability    *string            `json:"durability,omitempty" null:"\"default\"" doc:"memory, async or sync; default for store.flush. Counts for every send from now on. null is default."`
	Idempotent    *bool              `json:"idempotent,omitempty" null:"false" doc:"See Topic. null is false."`
	UntilConsumed *string            `json:"untilConsumed,omitempty" null:"\"off\"" doc:"A duration of at most 168h, true for that, or off. null is off."`
	Order         *bool              `json:"order,omitempty" null:"false" doc:"See Topic. null is false."`
	Attributes    map[string]*string `json:"attributes,omitempty" doc:"RocketMQ's attributes to be set: message.type (UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION) and reserve.time (milliseconds, or -1); null takes one away. queue.type and cleanup.policy cannot be changed."`
}

// TopicChanged is a topic before and after a change.
type TopicChanged struct {
	Before Topic `json:"before" doc:"As it was."`
	After  Topic `json:"after" doc:"As it is now."`
}

// Retention says when files of the log go, and how that stands.
type Retention struct {
	AgeSeconds        int64     `json:"ageSeconds" doc:"How long messages are kept: store.retention."`
	ViewWindowSeconds int64     `json:"viewWindowSeconds" doc:"How much later a file goes: store.view-window."`
	DeleteHours       []int     `json:"deleteHours" doc:"Hours of the day, local time, in which age deletes: store.delete-hours. Empty: at any hour."`
	DiskUsedPercent   int64     `json:"diskUsedPercent" doc:"Share of the disk that is used, at the last look; 0 before the first."`
	MaxUsedPercent    int64     `json:"maxUsedPercent" doc:"Above it age deletes at any hour: store.disk-max-used."`
	ForcedPercent     int64     `json:"forcedPercent" doc:"Above it the oldest files go whatever their age: store.disk-forced."`
	RefusePercent     int64     `json:"refusePercent" doc:"Above it messages are refused: store.disk-refuse."`
	MinPosition       int64     `json:"minPosition" doc:"First byte of the log that is still kept."`
	Files             int       `json:"files" doc:"Files of the log."`
	OldestFileUntil   time.Time `json:"oldestFileUntil" doc:"When the newest message of the oldest file was stored. 1970 while there is one file only, which never goes."`
	Problem           string    `json:"problem,omitempty" doc:"Why no message is taken: the disk failed or is full. Absent while all is well."`
	DeletedFiles      int64     `json:"deletedFiles" doc:"Files that went since the start."`
	MovedMessages     int64     `json:"movedMessages" doc:"Messages stored once more because they were still owed, since the start."`
	LostMessages      int64     `json:"lostMessages" doc:"Of those, messages that could not be read."`
	ExpiredMessages   int64     `json:"expiredMessages" doc:"Messages deleted before a group had read them, counted for each group, since the start."`
}

// CleanRequest asks for a look at what may go.
type CleanRequest struct{}

// CleanResult is what a look has deleted.
type CleanResult struct {
	DeletedFiles int       `json:"deletedFiles" doc:"Files of the log that went."`
	Retention    Retention `json:"retention" doc:"How retention stands behind it."`
}

// Group is one consumer group, on either front end.
type Group struct {
	Name       string       `json:"name" doc:"Name."`
	Mode       string       `json:"mode" doc:"pull or push."`
	Lag        int64        `json:"lag" doc:"Messages not yet consumed, over all topics. For a push group, what its cursors and retries have yet to bring, or what waits and is unanswered now when that is more."`
	Retries    int          `json:"retries" doc:"Push groups: messages that wait for another attempt."`
	Unanswered int          `json:"unanswered" doc:"Push groups: messages that wait for an answer."`
	Topics     []GroupTopic `json:"topics" doc:"What it consumes, in order of the topics' names."`
	Members    []Member     `json:"members" doc:"Connected clients."`
	Conflict   bool         `json:"conflict,omitempty" doc:"Pull groups: whether members subscribe differently. Each overwrites what the others want, and messages are passed over that some of them are for."`
}

// GroupTopic is a group's place in one topic.
type GroupTopic struct {
	Topic    string `json:"topic" doc:"Name of the topic."`
	Lag      int64  `json:"lag" doc:"Messages not yet consumed."`
	Attached *bool  `json:"attached,omitempty" doc:"Push groups: whether the group keeps up with the end of the topic."`
}

// Member is one connected client of a group.
type Member struct {
	ID       string `json:"id" doc:"Id that the client chose; its address on the Notify wire, which has no ids."`
	Address  string `json:"address" doc:"Where it connects from."`
	Language string `json:"language,omitempty" doc:"What it says it is written in."`
	Version  string `json:"version,omitempty" doc:"Version that it states."`
	Subs     string `json:"subscription,omitempty" doc:"What it subscribes, in a pull group; of a long one the first part."`
}

// GroupPage is a part of the list of groups.
type GroupPage struct {
	Groups []Group `json:"groups" doc:"In order of their names."`
	Next   string  `json:"next,omitempty" doc:"Value of after for the next page; absent on the last one."`
}

// Expiry is a range of messages that were deleted before a group had read them.
type Expiry struct {
	Group  string    `json:"group" doc:"Name of the group."`
	Topic  string    `json:"topic" doc:"Name of the topic."`
	Queue  int32     `json:"queue" doc:"Number of the queue."`
	First  int64     `json:"first" doc:"Queue offset of the first message."`
	Last   int64     `json:"last" doc:"Queue offset of the last one; the group goes on behind it."`
	Count  int64     `json:"count" doc:"Messages between them, before any filter of the group."`
	Reason string    `json:"reason" doc:"age: older than the age limit. disk: the disk was above the level of forced cleaning. body: what these messages were stored in has gone before them, readers step over them; count says how many between first and last."`
	Face   string    `json:"face" doc:"push or pull."`
	Time   time.Time `json:"time" doc:"When they were deleted."`
}

// Expiries are the newest of them.
type Expiries struct {
	Expiries []Expiry `json:"expiries" doc:"Oldest first."`
}

// Transaction is a half message without an outcome.
type Transaction struct {
	Address int64     `json:"address" doc:"Where its half message is in the log: the name of the transaction."`
	Topic   string    `json:"topic" doc:"Topic that the message is for."`
	Queue   int32     `json:"queue" doc:"Queue that it is for."`
	Group   string    `json:"group" doc:"Producer group whose members are asked."`
	ID      string    `json:"id" doc:"Unique id of the message."`
	Keys    string    `json:"keys,omitempty" doc:"Keys of the message."`
	Bytes   int       `json:"bytes" doc:"Bytes of its body."`
	Stored  time.Time `json:"stored" doc:"When the half message was stored."`
	Checks  int32     `json:"checks" doc:"How often a producer was asked."`
	Aside   bool      `json:"aside" doc:"Whether it was moved aside: nobody is asked any more."`
	Due     time.Time `json:"due" doc:"When a producer is asked next; of one that was moved aside, when that was due."`
	Problem string    `json:"problem,omitempty" doc:"Why the half message cannot be read. Absent when it can."`
}

// Transactions are some of them.
type Transactions struct {
	Transactions []Transaction `json:"transactions" doc:"Those due first come first."`
	Total        int           `json:"total" doc:"How many there are of the kind that was asked for."`
}

// TransactionQuery says which transactions are asked for.
type TransactionQuery struct {
	Aside bool `query:"aside" doc:"Those that were moved aside instead of those whose producers are asked. Default false."`
	Limit int  `query:"limit" doc:"Most entries, 1 to 1000. Default 100."`
}

// TransactionEnd says how a transaction is to end.
type TransactionEnd struct {
	Outcome string `json:"outcome" required:"true" doc:"commit or rollback. An outcome is final."`
}

// TransactionEnded is the outcome of a transaction.
type TransactionEnded struct {
	Address int64  `json:"address" doc:"The name of the transaction."`
	Outcome string `json:"outcome" doc:"commit or rollback."`
}

// Newest says how much of a list that ends with what is newest is asked for.
type Newest struct {
	Limit int `query:"limit" doc:"Most entries, 1 to 1000. Default 100."`
}

// Page says which part of a list is asked for.
type Page struct {
	Prefix string `query:"prefix" doc:"Only names that begin with this."`
	After  string `query:"after" doc:"Only names behind this one; the next field of the page before."`
	Limit  int    `query:"limit" doc:"Most entries, 1 to 1000. Default 100."`
	System bool   `query:"system" doc:"Include what the system made for itself. Default false."`
}

// Problem is an error as RFC 9457 has it, with the field, value and limit that it is about. It is what handlers
// return to say which answer a caller gets.
type Problem struct {
	Type   string `json:"type" doc:"about:blank."`
	Title  string `json:"title" doc:"Text of the status code."`
	Status int    `json:"status" doc:"HTTP status code."`
	Detail string `json:"detail" doc:"What is wrong and what to change."`
	Field  string `json:"field,omitempty" doc:"Field or parameter that is wrong."`
	Value  string `json:"value,omitempty" doc:"What it was."`
	Limit  string `json:"limit,omitempty" doc:"What it may be."`
}

func (p *Problem) Error() string { return p.Detail }
