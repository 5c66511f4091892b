package broker

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/queue"
)

// runtimeInfo is GET_BROKER_RUNTIME_INFO (28): the numbers that mqadmin and the dashboard show for a broker. All of them
// are text. Figures of machinery that this broker does not have (thread pools, the transient buffer) are what an idle one
// would say, because tools parse them as numbers.
func runtimeInfo(c *call) error {
	b := c.b
	now := time.Now()
	s := b.sample(now)
	bounds := b.store.Bounds()
	up := now.Sub(b.started)
	free, total, used := diskOf(b.dir)
	r := &b.rates
	r.Lock()
	morning, yesterday := r.morning, r.yesterday
	r.Unlock()
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	failed := b.stats.refusals.Load()
	average := 0.0
	if s.puts > 0 {
		average = float64(b.stats.putBytes.Load()) / float64(s.puts)
	}
	t := map[string]string{
		"brokerVersionDesc": "V5_3_3", "brokerVersion": n(int64(remoting.Version)), "brokerActive": "true",
		"bootTimestamp": n(b.started.UnixMilli()), "startAcceptSendRequestTimeStamp": "0",
		"runtime": fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", int(up.Hours())/24, int(up.Hours())%24, int(up.Minutes())%60, int(up.Seconds())%60),

		"putTps":            r.text(s, func(s sample) int64 { return s.puts }),
		"getTotalTps":       r.text(s, func(s sample) int64 { return s.hits + s.misses }),
		"getFoundTps":       r.text(s, func(s sample) int64 { return s.hits }),
		"getMissTps":        r.text(s, func(s sample) int64 { return s.misses }),
		"getTransferredTps": r.text(s, func(s sample) int64 { return s.gets }),

		"msgPutTotalTodayNow": n(s.puts), "msgPutTotalTodayMorning": n(morning.puts), "msgPutTotalYesterdayMorning": n(yesterday.puts),
		"msgGetTotalTodayNow": n(s.gets), "msgGetTotalTodayMorning": n(morning.gets), "msgGetTotalYesterdayMorning": n(yesterday.gets),
		"putMessageTimesTotal": n(s.puts), "putMessageFailedTimes": n(failed), "putMessageSizeTotal": n(b.stats.putBytes.Load()),
		"putMessageAverageSize": strconv.FormatFloat(average, 'f', 3, 64),

		"commitLogMinOffset": n(bounds.Min), "commitLogMaxOffset": n(bounds.Max), "dispatchBehindBytes": n(max(0, bounds.Max-bounds.Dispatched)),
		"remainHowManyDataToFlush": fmt.Sprintf("%d B", max(0, bounds.Max-bounds.Synced)), "remainTransientStoreBufferNumbs": "2147483647",
		"commitLogDiskRatio": fmt.Sprintf("%.4f", used), "consumeQueueDiskRatio": fmt.Sprintf("%.4f", used),
		"commitLogDirCapacity":     fmt.Sprintf("Total : %.1f GiB, Free : %.1f GiB.", float64(total)/(1<<30), float64(free)/(1<<30)),
		"earliestMessageTimeStamp": n(b.earliestTime()), "dispatchMaxBuffer": "0", "pageCacheLockTimeMills": "0",

		"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "0",
		"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0",
	}
	t["getTransferedTps"] = t["getTransferredTps"] // clusterList of RocketMQ 4.9 dies without this spelling
	for _, pool := range []string{"send", "pull", "query", "litePull", "ack"} {
		for _, figure := range []string{"Size", "Capacity", "HeadWaitTimeMills"} {
			t[pool+"ThreadPoolQueue"+figure] = "0"
		}
	}
	return c.json(remoting.KVTable{Table: t})
}

// earliestTime is when the oldest message that is still there was stored, the broker's start when there is none.
func (b *Broker) earliestTime() int64 {
	oldest := b.started.UnixMilli()
	topics, _ := b.store.Topics().All()
	var first [1]queue.Entry
	for _, t := range topics {
		for id := range min(t.ReadQueues, 16) { // the age of the log, not of each queue: a few queues of a topic tell it
			q := b.store.Queue(t.Name, id, false)
			if q == nil {
				continue
			}
			low, _ := q.Range()
			if n, err := q.Read(low, first[:]); err == nil && n > 0 && first[0].Time < oldest {
				oldest = first[0].Time
			}
		}
	}
	return oldest
}

// diskOf is the space of the file system that holds dir, in bytes, and the share of it in use, 0 to 1.
func diskOf(dir string) (free, total int64, used float64) {
	var st syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &st) != nil || st.Blocks == 0 {
		return 0, 0, 0
	}
	total, free = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	return free, total, 1 - float64(st.Bfree)/float64(st.Blocks)
}
