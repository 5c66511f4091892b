package fusion

import (
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
)

// systemTopics are the topics that RocketMQ makes for itself under fixed names.
var systemTopics = map[string]bool{
	"TBW102": true, "BenchmarkTest": true, "SELF_TEST_TOPIC": true, "OFFSET_MOVED_EVENT": true, "CHECKPOINT_TOPIC": true,
	"SCHEDULE_TOPIC_XXXX": true, "TRANS_CHECK_MAX_TIME_TOPIC": true,
}

// systemTopicName says whether a topic of this name belongs to the system in every cluster.
func systemTopicName(name string) bool {
	return systemTopics[name] || hasPrefix(name, "RMQ_SYS_", "rmq_sys_", meta.RetryPrefix, meta.DLQPrefix) || strings.HasSuffix(name, "_REPLY_TOPIC")
}

// systemGroupName says whether a group of this name belongs to RocketMQ or its tools.
func systemGroupName(name string) bool {
	switch name {
	case "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "__MONITOR_CONSUMER":
		return true
	}
	return hasPrefix(name, "CID_RMQ_SYS_", "CID_ONSAPI_", "CID_ONS-HTTP-PROXY")
}

func hasPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
