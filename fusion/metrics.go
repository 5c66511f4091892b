package fusion

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fusionmq/fusionmq/fusion/telemetry"
	"github.com/fusionmq/fusionmq/metaq/broker"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/notify"
	notifyserver "github.com/fusionmq/fusionmq/notify/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/state"
)

// metrics is the page /metrics. A name that begins with rocketmq_ is RocketMQ 5's, with its labels as far as there is something to
// say; all others are ours. Everything is read when somebody asks; between scrapes the page costs nothing.
func (a *App) metrics() http.Handler {
	p := telemetry.NewPage(map[string]string{"cluster": a.cfg.Broker.Cluster, "node_type": "broker", "node_id": a.cfg.Broker.Name})
	p.Register(&collector{app: a})
	return p.Handler()
}

// reading is what one scrape has read.
type reading struct {
	app     *App
	bounds  store.Bounds
	store   store.Stats
	state   state.Stats
	cleaned store.Cleaned
	once    store.OnceStats
	keys    lookup.Stats
	broker  broker.Stats // zero when the broker is off
	push    notify.Stats
	wire    notifyserver.Stats
	names   server.Stats // of the name server
	topics  int
	groups  int
}

// number is one metric without labels of its own.
type number struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*reading) float64
}

func gauge(name, help string, read func(*reading) float64) number {
	return number{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, read}
}

func counter(name, help string, read func(*reading) float64) number {
	return number{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, read}
}

var numbers = []number{
	gauge("rocketmq_broker_permission", "What the broker allows: 4 read, 2 write.", func(*reading) float64 { return 6 }),
	gauge("rocketmq_topic_number", "Topics, system topics included.", func(r *reading) float64 { return float64(r.topics) }),
	gauge("rocketmq_consumer_group_number", "Consumer groups of both front ends.", func(r *reading) float64 { return float64(r.groups) }),
	gauge("rocketmq_storage_size_bytes", "Bytes of the log that are kept.", func(r *reading) float64 { return float64(r.bounds.Max - r.bounds.Min) }),
	gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not on disk yet. A rise means that the disk is slower than the producers.",
		func(r *reading) float64 { return float64(r.bounds.Max - r.bounds.Synced) }),
	gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes of the log that the push state does not cover yet. A rise means that push falls behind.",
		func(r *reading) float64 { return float64(r.bounds.Max - r.bounds.Dispatched) }),

	gauge("fusionmq_ready", "1 while everything serves.", func(r *reading) float64 { return oneIf(r.app.Ready() == nil) }),
	gauge("fusionmq_memory_anonymous_bytes", "Resident memory that belongs to the process alone.", func(*reading) float64 { return float64(telemetry.AnonymousBytes()) }),
	gauge("fusionmq_memory_limit_bytes", "Size at which the garbage collector works harder.", func(r *reading) float64 { return float64(r.app.opts.Limit) }),

	gauge("fusionmq_store_healthy", "0 while the store takes no messages, because the disk failed or is full.", func(r *reading) float64 { return oneIf(r.app.store.Err() == nil) }),
	counter("fusionmq_store_appends_total", "Messages appended by producers of both front ends.", func(r *reading) float64 { return float64(r.store.Appends) }),
	counter("fusionmq_store_records_total", "Records written to the log: messages and changes of state.", func(r *reading) float64 { return float64(r.store.Log.Records) }),
	counter("fusionmq_store_record_bytes_total", "Bytes of those records.", func(r *reading) float64 { return float64(r.store.Log.Bytes) }),
	counter("fusionmq_store_writes_total", "Writes to the log; records per write is how well producers are batched.", func(r *reading) float64 { return float64(r.store.Log.Writes) }),
	counter("fusionmq_store_syncs_total", "Syncs of the log.", func(r *reading) float64 { return float64(r.store.Log.Syncs) }),
	counter("fusionmq_store_failures_total", "Writes and syncs of the log that failed. Any rise needs a look at the disk.", func(r *reading) float64 { return float64(r.store.Log.Failures) }),
	counter("fusionmq_store_segments_total", "Segment files begun.", func(r *reading) float64 { return float64(r.store.Log.Rolls) }),
	counter("fusionmq_store_append_waits_total", "Appends that waited for the next segment or for room in the write buffer. A rise means that the disk is slower than the producers.",
		func(r *reading) float64 { return float64(r.store.Log.Waits) }),

	gauge("fusionmq_store_mapped_bytes", "Bytes of the log that are mapped for reading: the files that somebody has read in the last minutes, 64 at most.", func(r *reading) float64 { return float64(r.store.Mapped) }),
	gauge("fusionmq_store_damaged_bytes", "Bytes of the log that were on the disk once and are no valid records any more. Any needs a look at the disk.", func(r *reading) float64 { return float64(r.app.store.Damage().Bytes) }),
	gauge("fusionmq_store_disk_used_percent", "Share of the disk that is used, at the last look. Above store.disk-refuse messages are refused.", func(r *reading) float64 { return float64(r.cleaned.DiskUsed) }),
	counter("fusionmq_store_deleted_segments_total", "Files of the log that were deleted.", func(r *reading) float64 { return float64(r.cleaned.Segments) }),
	counter("fusionmq_store_moved_records_total", "Messages that were stored once more because they were still owed when their file went.", func(r *reading) float64 { return float64(r.cleaned.Moved) }),
	counter("fusionmq_store_moves_lost_total", "Of those, messages that could not be read. Any rise needs a look at the log.", func(r *reading) float64 { return float64(r.cleaned.Lost) }),
	counter("fusionmq_store_bodies_again_total", "Messages that were stored once more because they were older than store.view-window when they were published.", func(r *reading) float64 { return float64(r.cleaned.Again) }),
	counter("fusionmq_store_expired_messages_total", "Messages that were deleted before a group had read them, counted for each group.", func(r *reading) float64 { return float64(r.cleaned.Expired) }),
	counter("fusionmq_store_expiries_total", "Expiry records: ranges of such messages, each with its group and queue.", func(r *reading) float64 { return float64(r.cleaned.Expiries) }),
	counter("fusionmq_store_clean_failures_total", "Looks for files to delete that ended in an error. Any rise needs a look at the disk.", func(r *reading) float64 { return float64(r.cleaned.Failures) }),

	gauge("fusionmq_store_undecided_transactions", "Transactions without an outcome whose producers are asked.", func(r *reading) float64 { return float64(r.state.Halves) }),
	gauge("fusionmq_store_transactions_aside", "Transactions without an outcome whose producers are not asked any more. Any needs a decision: `fusionctl transaction list --aside`.", func(r *reading) float64 { return float64(r.state.Aside) }),
	gauge("fusionmq_store_delayed_messages", "Messages that wait for their time.", func(r *reading) float64 { return float64(r.state.Delays) }),
	counter("fusionmq_store_repeated_sends_total", "Sends that got the result of an earlier one with the same id and were not stored. A rise means that producers send again, because answers come late or are lost.",
		func(r *reading) float64 { return float64(r.once.Repeats) }),
	counter("fusionmq_store_repeat_lookups_total", "Sends for which the key index was asked whether their id was there before. A rise beside ordinary traffic means that store.once-memory is too small.",
		func(r *reading) float64 { return float64(r.once.Asked) }),
	gauge("fusionmq_store_repeat_kept_ids", "Ids of messages owed to named groups that are known beyond store.once-window.", func(r *reading) float64 { return float64(r.once.Kept) }),
	gauge("fusionmq_store_keys", "Keys of messages in the files of the key index.", func(r *reading) float64 { return float64(r.keys.Entries) }),
	gauge("fusionmq_store_key_bytes", "Bytes of those files.", func(r *reading) float64 { return float64(r.keys.Bytes) }),
	gauge("fusionmq_store_key_behind_bytes", "Bytes of the log that the key index has not looked at, parts that it builds again included. Queries by key wait for it.",
		func(r *reading) float64 { return float64(r.keys.Behind + r.keys.Gaps) }),

	counter("fusionmq_broker_puts_total", "Messages stored for RocketMQ producers.", func(r *reading) float64 { return float64(r.broker.Put) }),
	counter("fusionmq_broker_put_bytes_total", "Bytes of their records.", func(r *reading) float64 { return float64(r.broker.PutBytes) }),
	counter("fusionmq_broker_batches_total", "Batches of RocketMQ producers; the messages in them count as stored each.", func(r *reading) float64 { return float64(r.broker.Batches) }),
	counter("fusionmq_broker_puts_refused_total", "Sends of RocketMQ producers that were not stored, a batch counted once; the answer to each says why.", func(r *reading) float64 { return float64(r.broker.PutRefused) }),
	counter("fusionmq_broker_commits_total", "Ends of transactions that RocketMQ producers committed, repeats included.", func(r *reading) float64 { return float64(r.broker.Commits) }),
	counter("fusionmq_broker_rollbacks_total", "Ends of transactions that they rolled back, repeats included.", func(r *reading) float64 { return float64(r.broker.Rollbacks) }),
	counter("fusionmq_broker_ends_refused_total", "Ends of transactions that were answered with an error. A rise means that producers end what is not there, or in two ways.", func(r *reading) float64 { return float64(r.broker.EndsRefused) }),
	counter("fusionmq_broker_checks_total", "Questions to RocketMQ producers how a transaction ended. A rise means that producers do not say it by themselves.", func(r *reading) float64 { return float64(r.broker.Checks) }),
	counter("fusionmq_broker_aside_total", "Transactions that were moved to TRANS_CHECK_MAX_TIME_TOPIC because their producers did not say how they ended. Each needs a decision.", func(r *reading) float64 { return float64(r.broker.Aside) }),
	counter("fusionmq_broker_recalls_total", "Delayed messages that RocketMQ producers took back.", func(r *reading) float64 { return float64(r.broker.Recalls) }),
	counter("fusionmq_broker_gets_total", "Messages handed to RocketMQ consumers.", func(r *reading) float64 { return float64(r.broker.Got) }),
	counter("fusionmq_broker_get_bytes_total", "Bytes of their records.", func(r *reading) float64 { return float64(r.broker.GotBytes) }),
	counter("fusionmq_broker_pulls_found_total", "Pulls that were answered with messages.", func(r *reading) float64 { return float64(r.broker.PullsFound) }),
	counter("fusionmq_broker_pulls_missed_total", "Pulls that found nothing at first.", func(r *reading) float64 { return float64(r.broker.PullsMissed) }),
	counter("fusionmq_broker_stepped_over_total", "Messages that pulls found and could not read, because what they were stored in has gone before them or is damaged; counted for each pull. `fusionctl group expired` names them.", func(r *reading) float64 { return float64(r.broker.SteppedOver) }),
	counter("fusionmq_broker_sql_looked_total", "Messages that pulls with an SQL92 filter came to.", func(r *reading) float64 { return float64(r.broker.SQLLooked) }),
	counter("fusionmq_broker_sql_read_total", "Of them, messages whose properties were read; of the others it was known. A rise to nearly all of them means that groups are far behind, or change their filters.",
		func(r *reading) float64 { return float64(r.broker.SQLRead) }),
	counter("fusionmq_broker_sent_back_total", "Messages that RocketMQ consumers could not consume and gave back, to get them again or to have them among the dead letters.", func(r *reading) float64 { return float64(r.broker.SentBack) }),
	counter("fusionmq_broker_not_returned_total", "Of groups without retry queues (retryQueueNums 0): messages that were given back and do not come again. Any is lost to the group, as it asked for.", func(r *reading) float64 { return float64(r.broker.NotReturned) }),
	gauge("fusionmq_broker_held_pulls", "Pulls that wait for a message.", func(r *reading) float64 { return float64(r.broker.HeldPulls) }),
	gauge("fusionmq_broker_conflicting_groups", "RocketMQ groups whose members subscribe differently, so that messages are passed over. `/api/v1/groups/NAME` says who subscribes what.", func(r *reading) float64 { return float64(r.broker.ConflictingGroups) }),
	counter("fusionmq_broker_resets_total", "Queues that a RocketMQ group was sent to another offset of, by an operator.", func(r *reading) float64 { return float64(r.broker.Resets) }),
	gauge("fusionmq_broker_locked_queues", "Queues that a member of an ordered group has for itself.", func(r *reading) float64 { return float64(r.broker.LockedQueues) }),
	gauge("fusionmq_broker_connections", "Open connections on the broker's ports.", func(r *reading) float64 { return float64(r.broker.Connections) }),
	counter("fusionmq_broker_pauses_total", "Times that a connection of the broker's ports was not read for a while. A rise means that clients send faster than is handled, or do not read their answers.",
		func(r *reading) float64 { return float64(r.broker.Paused) }),
	counter("fusionmq_broker_connections_total", "Connections accepted on the broker's ports.", func(r *reading) float64 { return float64(r.broker.Accepted) }),
	counter("fusionmq_broker_connections_refused_total", "Connections closed at once because broker.max-connections were open.", func(r *reading) float64 { return float64(r.broker.Refused) }),
	counter("fusionmq_broker_malformed_total", "Connections closed for a broken frame or another protocol.", func(r *reading) float64 { return float64(r.broker.Malformed) }),
	counter("fusionmq_broker_slow_total", "Connections closed because the peer did not read, or sent faster than it was handled.", func(r *reading) float64 { return float64(r.broker.Slow) }),
	counter("fusionmq_broker_panics_total", "Requests that failed by a mistake in this program; the log has the place.", func(r *reading) float64 { return float64(r.broker.Panics) }),

	counter("fusionmq_notify_sends_total", "Messages stored for Notify producers.", func(r *reading) float64 { return float64(r.push.Sends) }),
	counter("fusionmq_notify_send_failures_total", "Messages of Notify producers that were not stored; the answer to each says why.", func(r *reading) float64 { return float64(r.push.SendFailures) }),
	counter("fusionmq_notify_busy_total", "Messages of Notify producers that were refused because too many were on their way into the store.", func(r *reading) float64 { return float64(r.push.Busy) }),
	counter("fusionmq_notify_pushed_total", "Messages handed to connections, repeats included.", func(r *reading) float64 { return float64(r.push.Pushed) }),
	counter("fusionmq_notify_acked_total", "Pushed messages that a subscriber has acknowledged.", func(r *reading) float64 { return float64(r.push.Acked) }),
	counter("fusionmq_notify_failed_total", "Pushed messages that a subscriber has refused; each is tried again.", func(r *reading) float64 { return float64(r.push.Failed) }),
	counter("fusionmq_notify_timeouts_total", "Pushed messages without an answer in time; each is tried again. A rise means that subscribers are slow or gone.", func(r *reading) float64 { return float64(r.push.TimedOut) }),
	counter("fusionmq_notify_catch_up_total", "Messages found through the cursors of groups that were behind.", func(r *reading) float64 { return float64(r.push.CatchUp) }),
	counter("fusionmq_notify_attaches_total", "Groups that have caught up with the end of a topic.", func(r *reading) float64 { return float64(r.push.Attaches) }),
	counter("fusionmq_notify_attaches_refused_total", "Attaches that the store did not take, because they did not fit what the log says of the group; it is served from its cursor meanwhile. Any rise is a defect.", func(r *reading) float64 { return float64(r.push.AttachesRefused) }),
	counter("fusionmq_notify_detaches_total", "Groups that have left the end of a topic, with their last member or because too much waited.", func(r *reading) float64 { return float64(r.push.Detaches) }),
	counter("fusionmq_notify_overflows_total", "Of those, because too much waited. A rise means that a group is slower than its producers.", func(r *reading) float64 { return float64(r.push.Overflows) }),
	counter("fusionmq_notify_lost_total", "Messages that could not be read and were not delivered. Any rise needs a look at the log.", func(r *reading) float64 { return float64(r.push.Lost) }),
	counter("fusionmq_notify_volatile_drops_total", "Messages dropped with the last member of a group whose binding is not persistent.", func(r *reading) float64 { return float64(r.push.VolatileDrops) }),
	counter("fusionmq_notify_operations_total", "Changes of state written to the operate queue.", func(r *reading) float64 { return float64(r.push.Operations) }),
	counter("fusionmq_notify_operate_records_total", "Records that they were written in; operations per record is how well they are batched.", func(r *reading) float64 { return float64(r.push.OperateRecords) }),
	counter("fusionmq_notify_operate_failures_total", "Of those, refused by the store and tried again. Any rise needs a look at the disk.", func(r *reading) float64 { return float64(r.push.OperateFailures) }),
	gauge("fusionmq_notify_connections", "Open connections on the Notify port.", func(r *reading) float64 { return float64(r.wire.Connections) }),
	counter("fusionmq_notify_connections_total", "Connections accepted on the Notify port.", func(r *reading) float64 { return float64(r.wire.Accepted) }),
	counter("fusionmq_notify_connections_refused_total", "Connections closed at once because notify.max-connections were open.", func(r *reading) float64 { return float64(r.wire.Refused) }),
	counter("fusionmq_notify_malformed_total", "Connections closed for a broken frame or another protocol.", func(r *reading) float64 { return float64(r.wire.Malformed + r.wire.Foreign) }),
	counter("fusionmq_notify_pauses_total", "Times that a connection of the Notify port was not read for a while. A rise means that clients send faster than is handled, or do not read their answers.",
		func(r *reading) float64 { return float64(r.wire.Paused) }),
	counter("fusionmq_notify_slow_total", "Connections closed because the peer did not read.", func(r *reading) float64 { return float64(r.wire.Slow) }),
	counter("fusionmq_notify_panics_total", "Requests that failed by a mistake in this program; the log has the place.", func(r *reading) float64 { return float64(r.wire.Panics) }),
	gauge("fusionmq_notify_members", "Members of groups that are pushed to.", func(r *reading) float64 { return float64(r.push.Members) }),
	gauge("fusionmq_notify_waiting", "Messages that wait for a member with room.", func(r *reading) float64 { return float64(r.push.Waiting) }),
	gauge("fusionmq_notify_unanswered", "Messages that wait for an answer.", func(r *reading) float64 { return float64(r.push.Unanswered) }),

	gauge("fusionmq_nameserver_connections", "Open connections on the name server's port.", func(r *reading) float64 { return float64(r.names.Connections) }),
	counter("fusionmq_nameserver_malformed_total", "Connections closed for a broken frame or another protocol.", func(r *reading) float64 { return float64(r.names.Malformed + r.names.Foreign) }),
	counter("fusionmq_nameserver_slow_total", "Connections closed because the peer did not read, or sent faster than it was handled.", func(r *reading) float64 { return float64(r.names.Slow) }),
	counter("fusionmq_nameserver_panics_total", "Requests that failed by a mistake in this program; the log has the place.", func(r *reading) float64 { return float64(r.names.Panics) }),
	counter("fusionmq_nameserver_requests_total", "Requests on the name server's port.", func(r *reading) float64 { return float64(r.names.Requests) }),
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// The metrics with labels.
var (
	buildInfo = prometheus.NewDesc("fusionmq_build_info", "1, with what was built.", []string{"version", "go_version"}, nil)
	leftOut   = prometheus.NewDesc("fusionmq_metrics_series_left_out", "Label sets that the page leaves out because metrics.max-series allows no more.", []string{"metric"}, nil)

	messagesIn  = prometheus.NewDesc("rocketmq_messages_in_total", "Messages that a topic has got since it was made.", []string{"topic", "message_type", "is_system"}, nil)
	bytesIn     = prometheus.NewDesc("rocketmq_throughput_in_total", "Bytes of the records that RocketMQ producers have sent to a topic since the start.", []string{"topic", "message_type", "is_system"}, nil)
	messagesOut = prometheus.NewDesc("rocketmq_messages_out_total", "Messages of a topic handed to a RocketMQ group since the start.", []string{"topic", "consumer_group", "is_system"}, nil)
	bytesOut    = prometheus.NewDesc("rocketmq_throughput_out_total", "Bytes of their records.", []string{"topic", "consumer_group", "is_system"}, nil)
	lag         = prometheus.NewDesc("rocketmq_consumer_lag_messages", "Messages that a group has not consumed yet.", []string{"consumer_group", "topic", "is_retry", "is_system"}, nil)
	deadLetters = prometheus.NewDesc("rocketmq_send_to_dlq_messages_total", "Messages of a topic that became dead letters of a RocketMQ group since the start.", []string{"consumer_group", "topic", "is_system"}, nil)
	consumers   = prometheus.NewDesc("rocketmq_consumer_connections", "Connected members of a group.",
		[]string{"consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"}, nil)
)

var labelled = []*prometheus.Desc{buildInfo, leftOut, messagesIn, bytesIn, messagesOut, bytesOut, lag, deadLetters, consumers}

// collector reads the numbers of an App.
type collector struct {
	app *App
	// Label sets that are on the page.
	topics, sent, taken, dead, lags, conn telemetry.Series
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range numbers {
		ch <- n.desc
	}
	for _, d := range labelled {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	a := c.app
	r := &reading{app: a, bounds: a.store.Bounds(), store: a.store.Stats(), state: a.store.StateStats(), cleaned: a.store.Cleaned(), once: a.store.OnceStats(), keys: a.store.KeyStats(), push: a.push.Stats(), topics: a.store.Topics().Len()}
	if a.broker != nil {
		r.broker = a.broker.Stats()
	}
	if a.notify != nil {
		r.wire = a.notify.Stats()
	}
	if a.nameServer != nil {
		r.names = a.nameServer.Stats()
	}
	push := a.readPushes()
	groups := (*adminView)(a).groupNames(true, &push)
	r.groups = len(groups)
	for _, n := range numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.read(r))
	}
	ch <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, Version, runtime.Version())

	limit := int(a.live.Load().Metrics.MaxSeries)
	c.collectTopics(ch, limit)
	c.collectTraffic(ch, limit)
	c.collectGroups(ch, limit, groups, &push)
	for name, s := range map[string]*telemetry.Series{
		"rocketmq_messages_in_total": &c.topics, "rocketmq_throughput_in_total": &c.sent, "rocketmq_messages_out_total": &c.taken,
		"rocketmq_send_to_dlq_messages_total": &c.dead,
		"rocketmq_consumer_lag_messages":      &c.lags, "rocketmq_consumer_connections": &c.conn,
	} {
		ch <- prometheus.MustNewConstMetric(leftOut, prometheus.GaugeValue, float64(s.LeftOut()), name)
	}
}

// collectTopics counts by the offsets that the queues have given out: exact, and the same after a restart.
func (c *collector) collectTopics(ch chan<- prometheus.Metric, limit int) {
	c.topics.Begin()
	all, _ := c.app.store.Topics().All()
	for _, t := range all {
		var total int64
		for id := range max(t.ReadQueues, t.WriteQueues) {
			if q := c.app.store.Queue(t.Name, id, false); q != nil {
				_, next := q.Range()
				total += next
			}
		}
		if total > 0 && c.topics.Allow(t.Name, limit) {
			ch <- prometheus.MustNewConstMetric(messagesIn, prometheus.CounterValue, float64(total), t.Name, "normal", strconv.FormatBool(c.app.systemTopic(t)))
		}
	}
}

// collectTraffic counts what went through the broker since the start.
func (c *collector) collectTraffic(ch chan<- prometheus.Metric, limit int) {
	c.sent.Begin()
	c.taken.Begin()
	c.dead.Begin()
	if c.app.broker == nil {
		return
	}
	// The broker's lock is held while it calls, so the label sets are collected first.
	type flow struct {
		topic, group    string
		messages, bytes int64
	}
	var in, out, dead []flow
	c.app.broker.Traffic(func(topic string, messages, bytes int64) {
		if c.sent.Allow(topic, limit) {
			in = append(in, flow{topic: topic, messages: messages, bytes: bytes})
		}
	})
	c.app.broker.Consumption(func(group, topic string, messages, bytes int64) {
		if c.taken.Allow(group+"\x00"+topic, limit) {
			out = append(out, flow{topic, group, messages, bytes})
		}
	})
	c.app.broker.DeadLetters(func(group, topic string, messages int64) {
		if c.dead.Allow(group+"\x00"+topic, limit) {
			dead = append(dead, flow{topic: topic, group: group, messages: messages})
		}
	})
	for _, f := range dead {
		ch <- prometheus.MustNewConstMetric(deadLetters, prometheus.CounterValue, float64(f.messages), f.group, f.topic, c.app.isSystem(f.topic))
	}
	for _, f := range in {
		ch <- prometheus.MustNewConstMetric(bytesIn, prometheus.CounterValue, float64(f.bytes), f.topic, "normal", c.app.isSystem(f.topic))
	}
	for _, f := range out {
		system := c.app.isSystem(f.topic)
		ch <- prometheus.MustNewConstMetric(messagesOut, prometheus.CounterValue, float64(f.messages), f.topic, f.group, system)
		ch <- prometheus.MustNewConstMetric(bytesOut, prometheus.CounterValue, float64(f.bytes), f.topic, f.group, system)
	}
}

// isSystem is the label is_system of a topic.
func (a *App) isSystem(topic string) string {
	t := a.store.Topics().Get(topic)
	return strconv.FormatBool(t != nil && a.systemTopic(t))
}

// collectGroups reads lag and members of the groups.
func (c *collector) collectGroups(ch chan<- prometheus.Metric, limit int, names []string, push *pushes) {
	c.lags.Begin()
	c.conn.Begin()
	v, pull := (*adminView)(c.app), c.app.readPulls(names)
	push.follow(c.app, names)
	for _, name := range names {
		g := v.group(name, &pull, push)
		system := strconv.FormatBool(systemGroupName(name))
		for _, t := range g.Topics {
			if c.lags.Allow(name+"\x00"+t.Topic, limit) {
				ch <- prometheus.MustNewConstMetric(lag, prometheus.GaugeValue, float64(t.Lag), name, t.Topic, strconv.FormatBool(hasPrefix(t.Topic, "%RETRY%")), system)
			}
		}
		type kind struct{ language, version string }
		count := map[kind]int{}
		for _, m := range g.Members {
			count[kind{m.Language, m.Version}]++
		}
		protocol := "remoting"
		if g.Mode == "push" {
			protocol = "notify"
		}
		for k, n := range count {
			if c.conn.Allow(name+"\x00"+k.language+"\x00"+k.version, limit) {
				ch <- prometheus.MustNewConstMetric(consumers, prometheus.GaugeValue, float64(n), name, k.language, k.version, g.Mode, protocol, system)
			}
		}
	}
}
