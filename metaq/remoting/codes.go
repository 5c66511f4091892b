package remoting

import "strconv"

// Request codes of the protocol (spec: RocketMQ 5.3.3, RequestCode.java). A server answers RespRequestCodeNotSupported to
// those it does not implement; all are listed so that the answer and the log can say what was asked for.
const (
	ReqSendMessage                          int32 = 10
	ReqPullMessage                          int32 = 11
	ReqQueryMessage                         int32 = 12
	ReqQueryBrokerOffset                    int32 = 13
	ReqQueryConsumerOffset                  int32 = 14
	ReqUpdateConsumerOffset                 int32 = 15
	ReqUpdateAndCreateTopic                 int32 = 17
	ReqUpdateAndCreateTopicList             int32 = 18
	ReqGetAllTopicConfig                    int32 = 21
	ReqGetTopicConfigList                   int32 = 22
	ReqGetTopicNameList                     int32 = 23
	ReqUpdateBrokerConfig                   int32 = 25
	ReqGetBrokerConfig                      int32 = 26
	ReqTriggerDeleteFiles                   int32 = 27
	ReqGetBrokerRuntimeInfo                 int32 = 28
	ReqSearchOffsetByTimestamp              int32 = 29
	ReqGetMaxOffset                         int32 = 30
	ReqGetMinOffset                         int32 = 31
	ReqGetEarliestMsgStoretime              int32 = 32
	ReqViewMessageByID                      int32 = 33
	ReqHeartBeat                            int32 = 34
	ReqUnregisterClient                     int32 = 35
	ReqConsumerSendMsgBack                  int32 = 36
	ReqEndTransaction                       int32 = 37
	ReqGetConsumerListByGroup               int32 = 38
	ReqCheckTransactionState                int32 = 39
	ReqNotifyConsumerIDsChanged             int32 = 40
	ReqLockBatchMQ                          int32 = 41
	ReqUnlockBatchMQ                        int32 = 42
	ReqGetAllConsumerOffset                 int32 = 43
	ReqGetAllDelayOffset                    int32 = 45
	ReqCheckClientConfig                    int32 = 46
	ReqGetClientConfig                      int32 = 47
	ReqUpdateAndCreateACLConfig             int32 = 50
	ReqDeleteACLConfig                      int32 = 51
	ReqGetBrokerClusterACLInfo              int32 = 52
	ReqUpdateGlobalWhiteAddrsConfig         int32 = 53
	ReqGetTimerCheckPoint                   int32 = 60
	ReqGetTimerMetrics                      int32 = 61
	ReqPutKVConfig                          int32 = 100
	ReqGetKVConfig                          int32 = 101
	ReqDeleteKVConfig                       int32 = 102
	ReqRegisterBroker                       int32 = 103
	ReqUnregisterBroker                     int32 = 104
	ReqGetRouteInfoByTopic                  int32 = 105
	ReqGetBrokerClusterInfo                 int32 = 106
	ReqUpdateAndCreateSubscriptionGroup     int32 = 200
	ReqGetAllSubscriptionGroupConfig        int32 = 201
	ReqGetTopicStatsInfo                    int32 = 202
	ReqGetConsumerConnectionList            int32 = 203
	ReqGetProducerConnectionList            int32 = 204
	ReqWipeWritePermOfBroker                int32 = 205
	ReqGetAllTopicListFromNameServer        int32 = 206
	ReqDeleteSubscriptionGroup              int32 = 207
	ReqGetConsumeStats                      int32 = 208
	ReqSuspendConsumer                      int32 = 209
	ReqResumeConsumer                       int32 = 210
	ReqResetConsumerOffsetInConsumer        int32 = 211
	ReqResetConsumerOffsetInBroker          int32 = 212
	ReqAdjustConsumerThreadPool             int32 = 213
	ReqWhoConsumeTheMessage                 int32 = 214
	ReqDeleteTopicInBroker                  int32 = 215
	ReqDeleteTopicInNameServer              int32 = 216
	ReqRegisterTopicInNameServer            int32 = 217
	ReqGetKVListByNamespace                 int32 = 219
	ReqResetConsumerClientOffset            int32 = 220
	ReqGetConsumerStatusFromClient          int32 = 221
	ReqInvokeBrokerToResetOffset            int32 = 222
	ReqInvokeBrokerToGetConsumerStatus      int32 = 223
	ReqGetTopicsByCluster                   int32 = 224
	ReqUpdateAndCreateSubscriptionGroupList int32 = 225
	ReqQueryTopicConsumeByWho               int32 = 300
	ReqRegisterFilterServer                 int32 = 301
	ReqRegisterMessageFilterClass           int32 = 302
	ReqQueryConsumeTimeSpan                 int32 = 303
	ReqGetSystemTopicListFromNS             int32 = 304
	ReqGetSystemTopicListFromBroker         int32 = 305
	ReqCleanExpiredConsumeQueue             int32 = 306
	ReqGetConsumerRunningInfo               int32 = 307
	ReqQueryCorrectionOffset                int32 = 308
	ReqConsumeMessageDirectly               int32 = 309
	ReqSendMessageV2                        int32 = 310
	ReqGetUnitTopicList                     int32 = 311
	ReqGetHasUnitSubTopicList               int32 = 312
	ReqGetHasUnitSubUnunitTopicList         int32 = 313
	ReqCloneGroupOffset                     int32 = 314
	ReqViewBrokerStatsData                  int32 = 315
	ReqCleanUnusedTopic                     int32 = 316
	ReqGetBrokerConsumeStats                int32 = 317
	ReqUpdateNameServerConfig               int32 = 318
	ReqGetNameServerConfig                  int32 = 319
	ReqSendBatchMessage                     int32 = 320
	ReqQueryConsumeQueue                    int32 = 321
	ReqQueryDataVersion                     int32 = 322
	ReqResumeCheckHalfMessage               int32 = 323
	ReqSendReplyMessage                     int32 = 324
	ReqSendReplyMessageV2                   int32 = 325
	ReqPushReplyMessageToClient             int32 = 326
	ReqAddWritePermOfBroker                 int32 = 327
	ReqGetAllProducerInfo                   int32 = 328
	ReqDeleteExpiredCommitLog               int32 = 329
	ReqQueryTopicsByConsumer                int32 = 343
	ReqQuerySubscriptionByConsumer          int32 = 345
	ReqGetTopicConfig                       int32 = 351
	ReqGetSubscriptionGroupConfig           int32 = 352
	ReqUpdateAndGetGroupForbidden           int32 = 353
	ReqCheckRocksDBCQWriteProgress          int32 = 354
	ReqExportRocksDBConfigToJSON            int32 = 355
	ReqLitePullMessage                      int32 = 361
	ReqRecallMessage                        int32 = 370
	ReqQueryAssignment                      int32 = 400
	ReqSetMessageRequestMode                int32 = 401
	ReqGetAllMessageRequestMode             int32 = 402
	ReqUpdateAndCreateStaticTopic           int32 = 513
	ReqGetBrokerMemberGroup                 int32 = 901
	ReqAddBroker                            int32 = 902
	ReqRemoveBroker                         int32 = 903
	ReqBrokerHeartbeat                      int32 = 904
	ReqNotifyMinBrokerIDChange              int32 = 905
	ReqExchangeBrokerHAInfo                 int32 = 906
	ReqGetBrokerHAStatus                    int32 = 907
	ReqResetMasterFlushOffset               int32 = 908
	ReqControllerAlterSyncStateSet          int32 = 1001
	ReqControllerElectMaster                int32 = 1002
	ReqControllerRegisterBroker             int32 = 1003
	ReqControllerGetReplicaInfo             int32 = 1004
	ReqControllerGetMetadataInfo            int32 = 1005
	ReqControllerGetSyncStateData           int32 = 1006
	ReqGetBrokerEpochCache                  int32 = 1007
	ReqNotifyBrokerRoleChanged              int32 = 1008
	ReqUpdateControllerConfig               int32 = 1009
	ReqGetControllerConfig                  int32 = 1010
	ReqCleanBrokerData                      int32 = 1011
	ReqControllerGetNextBrokerID            int32 = 1012
	ReqControllerApplyBrokerID              int32 = 1013
	ReqUpdateColdDataFlowCtrConfig          int32 = 2001
	ReqRemoveColdDataFlowCtrConfig          int32 = 2002
	ReqGetColdDataFlowCtrInfo               int32 = 2003
	ReqSetCommitLogReadMode                 int32 = 2004
	ReqAuthCreateUser                       int32 = 3001
	ReqAuthUpdateUser                       int32 = 3002
	ReqAuthDeleteUser                       int32 = 3003
	ReqAuthGetUser                          int32 = 3004
	ReqAuthListUser                         int32 = 3005
	ReqAuthCreateACL                        int32 = 3006
	ReqAuthUpdateACL                        int32 = 3007
	ReqAuthDeleteACL                        int32 = 3008
	ReqAuthGetACL                           int32 = 3009
	ReqAuthListACL                          int32 = 3010
	ReqPopMessage                           int32 = 200050
	ReqAckMessage                           int32 = 200051
	ReqPeekMessage                          int32 = 200052
	ReqChangeMessageInvisibleTime           int32 = 200053
	ReqNotification                         int32 = 200054
	ReqPollingInfo                          int32 = 200055
	ReqPopRollback                          int32 = 200056
	ReqBatchAckMessage                      int32 = 200151
)

// Response codes of the protocol (ResponseCode.java, RemotingSysResponseCode.java).
const (
	RespRPCTimeOut                 int32 = -1006
	RespRPCSendToChannelFailed     int32 = -1004
	RespRPCAddrIsNull              int32 = -1002
	RespRPCUnknown                 int32 = -1000
	RespSuccess                    int32 = 0
	RespSystemError                int32 = 1
	RespSystemBusy                 int32 = 2
	RespRequestCodeNotSupported    int32 = 3
	RespTransactionFailed          int32 = 4
	RespFlushDiskTimeout           int32 = 10
	RespSlaveNotAvailable          int32 = 11
	RespFlushSlaveTimeout          int32 = 12
	RespMessageIllegal             int32 = 13
	RespServiceNotAvailable        int32 = 14
	RespVersionNotSupported        int32 = 15
	RespNoPermission               int32 = 16
	RespTopicNotExist              int32 = 17
	RespTopicExistAlready          int32 = 18
	RespPullNotFound               int32 = 19
	RespPullRetryImmediately       int32 = 20
	RespPullOffsetMoved            int32 = 21
	RespQueryNotFound              int32 = 22
	RespSubscriptionParseFailed    int32 = 23
	RespSubscriptionNotExist       int32 = 24
	RespSubscriptionNotLatest      int32 = 25
	RespSubscriptionGroupNotExist  int32 = 26
	RespFilterDataNotExist         int32 = 27
	RespFilterDataNotLatest        int32 = 28
	RespInvalidParameter           int32 = 29
	RespTransactionShouldCommit    int32 = 200
	RespTransactionShouldRollback  int32 = 201
	RespTransactionStateUnknow     int32 = 202
	RespTransactionStateGroupWrong int32 = 203
	RespNoBuyerID                  int32 = 204
	RespNotInCurrentUnit           int32 = 205
	RespConsumerNotOnline          int32 = 206
	RespConsumeMsgTimeout          int32 = 207
	RespNoMessage                  int32 = 208
	RespPollingFull                int32 = 209
	RespPollingTimeout             int32 = 210
	RespBrokerNotExist             int32 = 211
	RespBrokerDispatchNotComplete  int32 = 212
	RespBroadcastConsumption       int32 = 213
	RespFlowControl                int32 = 215
	RespNotLeaderForQueue          int32 = 501
	RespIllegalOperation           int32 = 604
	RespGoAway                     int32 = 1500
	RespUserNotExist               int32 = 3001
	RespPolicyNotExist             int32 = 3002
)

// RequestName returns the protocol's name of a request code, or its decimal text when it has none.
func RequestName(code int32) string {
	if n, ok := requestNames[code]; ok {
		return n
	}
	return strconv.Itoa(int(code))
}

// NotSupported is the remark of REQUEST_CODE_NOT_SUPPORTED: RocketMQ's text, leading blank included, and the code's name.
func NotSupported(code int32) string {
	remark := " request type " + strconv.Itoa(int(code)) + " not supported"
	if n, ok := requestNames[code]; ok {
		remark += ": " + n
	}
	return remark
}

// ResponseName returns the protocol's name of a response code, or its decimal text when it has none.
func ResponseName(code int32) string {
	if n, ok := responseNames[code]; ok {
		return n
	}
	return strconv.Itoa(int(code))
}

var requestNames = map[int32]string{
	ReqSendMessage:                          "SEND_MESSAGE",
	ReqPullMessage:                          "PULL_MESSAGE",
	ReqQueryMessage:                         "QUERY_MESSAGE",
	ReqQueryBrokerOffset:                    "QUERY_BROKER_OFFSET",
	ReqQueryConsumerOffset:                  "QUERY_CONSUMER_OFFSET",
	ReqUpdateConsumerOffset:                 "UPDATE_CONSUMER_OFFSET",
	ReqUpdateAndCreateTopic:                 "UPDATE_AND_CREATE_TOPIC",
	ReqUpdateAndCreateTopicList:             "UPDATE_AND_CREATE_TOPIC_LIST",
	ReqGetAllTopicConfig:                    "GET_ALL_TOPIC_CONFIG",
	ReqGetTopicConfigList:                   "GET_TOPIC_CONFIG_LIST",
	ReqGetTopicNameList:                     "GET_TOPIC_NAME_LIST",
	ReqUpdateBrokerConfig:                   "UPDATE_BROKER_CONFIG",
	ReqGetBrokerConfig:                      "GET_BROKER_CONFIG",
	ReqTriggerDeleteFiles:                   "TRIGGER_DELETE_FILES",
	ReqGetBrokerRuntimeInfo:                 "GET_BROKER_RUNTIME_INFO",
	ReqSearchOffsetByTimestamp:              "SEARCH_OFFSET_BY_TIMESTAMP",
	ReqGetMaxOffset:                         "GET_MAX_OFFSET",
	ReqGetMinOffset:                         "GET_MIN_OFFSET",
	ReqGetEarliestMsgStoretime:              "GET_EARLIEST_MSG_STORETIME",
	ReqViewMessageByID:                      "VIEW_MESSAGE_BY_ID",
	ReqHeartBeat:                            "HEART_BEAT",
	ReqUnregisterClient:                     "UNREGISTER_CLIENT",
	ReqConsumerSendMsgBack:                  "CONSUMER_SEND_MSG_BACK",
	ReqEndTransaction:                       "END_TRANSACTION",
	ReqGetConsumerListByGroup:               "GET_CONSUMER_LIST_BY_GROUP",
	ReqCheckTransactionState:                "CHECK_TRANSACTION_STATE",
	ReqNotifyConsumerIDsChanged:             "NOTIFY_CONSUMER_IDS_CHANGED",
	ReqLockBatchMQ:                          "LOCK_BATCH_MQ",
	ReqUnlockBatchMQ:                        "UNLOCK_BATCH_MQ",
	ReqGetAllConsumerOffset:                 "GET_ALL_CONSUMER_OFFSET",
	ReqGetAllDelayOffset:                    "GET_ALL_DELAY_OFFSET",
	ReqCheckClientConfig:                    "CHECK_CLIENT_CONFIG",
	ReqGetClientConfig:                      "GET_CLIENT_CONFIG",
	ReqUpdateAndCreateACLConfig:             "UPDATE_AND_CREATE_ACL_CONFIG",
	ReqDeleteACLConfig:                      "DELETE_ACL_CONFIG",
	ReqGetBrokerClusterACLInfo:              "GET_BROKER_CLUSTER_ACL_INFO",
	ReqUpdateGlobalWhiteAddrsConfig:         "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
	ReqGetTimerCheckPoint:                   "GET_TIMER_CHECK_POINT",
	ReqGetTimerMetrics:                      "GET_TIMER_METRICS",
	ReqPutKVConfig:                          "PUT_KV_CONFIG",
	ReqGetKVConfig:                          "GET_KV_CONFIG",
	ReqDeleteKVConfig:                       "DELETE_KV_CONFIG",
	ReqRegisterBroker:                       "REGISTER_BROKER",
	ReqUnregisterBroker:                     "UNREGISTER_BROKER",
	ReqGetRouteInfoByTopic:                  "GET_ROUTEINFO_BY_TOPIC",
	ReqGetBrokerClusterInfo:                 "GET_BROKER_CLUSTER_INFO",
	ReqUpdateAndCreateSubscriptionGroup:     "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
	ReqGetAllSubscriptionGroupConfig:        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
	ReqGetTopicStatsInfo:                    "GET_TOPIC_STATS_INFO",
	ReqGetConsumerConnectionList:            "GET_CONSUMER_CONNECTION_LIST",
	ReqGetProducerConnectionList:            "GET_PRODUCER_CONNECTION_LIST",
	ReqWipeWritePermOfBroker:                "WIPE_WRITE_PERM_OF_BROKER",
	ReqGetAllTopicListFromNameServer:        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
	ReqDeleteSubscriptionGroup:              "DELETE_SUBSCRIPTIONGROUP",
	ReqGetConsumeStats:                      "GET_CONSUME_STATS",
	ReqSuspendConsumer:                      "SUSPEND_CONSUMER",
	ReqResumeConsumer:                       "RESUME_CONSUMER",
	ReqResetConsumerOffsetInConsumer:        "RESET_CONSUMER_OFFSET_IN_CONSUMER",
	ReqResetConsumerOffsetInBroker:          "RESET_CONSUMER_OFFSET_IN_BROKER",
	ReqAdjustConsumerThreadPool:             "ADJUST_CONSUMER_THREAD_POOL",
	ReqWhoConsumeTheMessage:                 "WHO_CONSUME_THE_MESSAGE",
	ReqDeleteTopicInBroker:                  "DELETE_TOPIC_IN_BROKER",
	ReqDeleteTopicInNameServer:              "DELETE_TOPIC_IN_NAMESRV",
	ReqRegisterTopicInNameServer:            "REGISTER_TOPIC_IN_NAMESRV",
	ReqGetKVListByNamespace:                 "GET_KVLIST_BY_NAMESPACE",
	ReqResetConsumerClientOffset:            "RESET_CONSUMER_CLIENT_OFFSET",
	ReqGetConsumerStatusFromClient:          "GET_CONSUMER_STATUS_FROM_CLIENT",
	ReqInvokeBrokerToResetOffset:            "INVOKE_BROKER_TO_RESET_OFFSET",
	ReqInvokeBrokerToGetConsumerStatus:      "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
	ReqGetTopicsByCluster:                   "GET_TOPICS_BY_CLUSTER",
	ReqUpdateAndCreateSubscriptionGroupList: "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
	ReqQueryTopicConsumeByWho:               "QUERY_TOPIC_CONSUME_BY_WHO",
	ReqRegisterFilterServer:                 "REGISTER_FILTER_SERVER",
	ReqRegisterMessageFilterClass:           "REGISTER_MESSAGE_FILTER_CLASS",
	ReqQueryConsumeTimeSpan:                 "QUERY_CONSUME_TIME_SPAN",
	ReqGetSystemTopicListFromNS:             "GET_SYSTEM_TOPIC_LIST_FROM_NS",
	ReqGetSystemTopicListFromBroker:         "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
	ReqCleanExpiredConsumeQueue:             "CLEAN_EXPIRED_CONSUMEQUEUE",
	ReqGetConsumerRunningInfo:               "GET_CONSUMER_RUNNING_INFO",
	ReqQueryCorrectionOffset:                "QUERY_CORRECTION_OFFSET",
	ReqConsumeMessageDirectly:               "CONSUME_MESSAGE_DIRECTLY",
	ReqSendMessageV2:                        "SEND_MESSAGE_V2",
	ReqGetUnitTopicList:                     "GET_UNIT_TOPIC_LIST",
	ReqGetHasUnitSubTopicList:               "GET_HAS_UNIT_SUB_TOPIC_LIST",
	ReqGetHasUnitSubUnunitTopicList:         "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
	ReqCloneGroupOffset:                     "CLONE_GROUP_OFFSET",
	ReqViewBrokerStatsData:                  "VIEW_BROKER_STATS_DATA",
	ReqCleanUnusedTopic:                     "CLEAN_UNUSED_TOPIC",
	ReqGetBrokerConsumeStats:                "GET_BROKER_CONSUME_STATS",
	ReqUpdateNameServerConfig:               "UPDATE_NAMESRV_CONFIG",
	ReqGetNameServerConfig:                  "GET_NAMESRV_CONFIG",
	ReqSendBatchMessage:                     "SEND_BATCH_MESSAGE",
	ReqQueryConsumeQueue:                    "QUERY_CONSUME_QUEUE",
	ReqQueryDataVersion:                     "QUERY_DATA_VERSION",
	ReqResumeCheckHalfMessage:               "RESUME_CHECK_HALF_MESSAGE",
	ReqSendReplyMessage:                     "SEND_REPLY_MESSAGE",
	ReqSendReplyMessageV2:                   "SEND_REPLY_MESSAGE_V2",
	ReqPushReplyMessageToClient:             "PUSH_REPLY_MESSAGE_TO_CLIENT",
	ReqAddWritePermOfBroker:                 "ADD_WRITE_PERM_OF_BROKER",
	ReqGetAllProducerInfo:                   "GET_ALL_PRODUCER_INFO",
	ReqDeleteExpiredCommitLog:               "DELETE_EXPIRED_COMMITLOG",
	ReqQueryTopicsByConsumer:                "QUERY_TOPICS_BY_CONSUMER",
	ReqQuerySubscriptionByConsumer:          "QUERY_SUBSCRIPTION_BY_CONSUMER",
	ReqGetTopicConfig:                       "GET_TOPIC_CONFIG",
	ReqGetSubscriptionGroupConfig:           "GET_SUBSCRIPTIONGROUP_CONFIG",
	ReqUpdateAndGetGroupForbidden:           "UPDATE_AND_GET_GROUP_FORBIDDEN",
	ReqCheckRocksDBCQWriteProgress:          "CHECK_ROCKSDB_CQ_WRITE_PROGRESS",
	ReqExportRocksDBConfigToJSON:            "EXPORT_ROCKSDB_CONFIG_TO_JSON",
	ReqLitePullMessage:                      "LITE_PULL_MESSAGE",
	ReqRecallMessage:                        "RECALL_MESSAGE",
	ReqQueryAssignment:                      "QUERY_ASSIGNMENT",
	ReqSetMessageRequestMode:                "SET_MESSAGE_REQUEST_MODE",
	ReqGetAllMessageRequestMode:             "GET_ALL_MESSAGE_REQUEST_MODE",
	ReqUpdateAndCreateStaticTopic:           "UPDATE_AND_CREATE_STATIC_TOPIC",
	ReqGetBrokerMemberGroup:                 "GET_BROKER_MEMBER_GROUP",
	ReqAddBroker:                            "ADD_BROKER",
	ReqRemoveBroker:                         "REMOVE_BROKER",
	ReqBrokerHeartbeat:                      "BROKER_HEARTBEAT",
	ReqNotifyMinBrokerIDChange:              "NOTIFY_MIN_BROKER_ID_CHANGE",
	ReqExchangeBrokerHAInfo:                 "EXCHANGE_BROKER_HA_INFO",
	ReqGetBrokerHAStatus:                    "GET_BROKER_HA_STATUS",
	ReqResetMasterFlushOffset:               "RESET_MASTER_FLUSH_OFFSET",
	ReqControllerAlterSyncStateSet:          "CONTROLLER_ALTER_SYNC_STATE_SET",
	ReqControllerElectMaster:                "CONTROLLER_ELECT_MASTER",
	ReqControllerRegisterBroker:             "CONTROLLER_REGISTER_BROKER",
	ReqControllerGetReplicaInfo:             "CONTROLLER_GET_REPLICA_INFO",
	ReqControllerGetMetadataInfo:            "CONTROLLER_GET_METADATA_INFO",
	ReqControllerGetSyncStateData:           "CONTROLLER_GET_SYNC_STATE_DATA",
	ReqGetBrokerEpochCache:                  "GET_BROKER_EPOCH_CACHE",
	ReqNotifyBrokerRoleChanged:              "NOTIFY_BROKER_ROLE_CHANGED",
	ReqUpdateControllerConfig:               "UPDATE_CONTROLLER_CONFIG",
	ReqGetControllerConfig:                  "GET_CONTROLLER_CONFIG",
	ReqCleanBrokerData:                      "CLEAN_BROKER_DATA",
	ReqControllerGetNextBrokerID:            "CONTROLLER_GET_NEXT_BROKER_ID",
	ReqControllerApplyBrokerID:              "CONTROLLER_APPLY_BROKER_ID",
	ReqUpdateColdDataFlowCtrConfig:          "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
	ReqRemoveColdDataFlowCtrConfig:          "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
	ReqGetColdDataFlowCtrInfo:               "GET_COLD_DATA_FLOW_CTR_INFO",
	ReqSetCommitLogReadMode:                 "SET_COMMITLOG_READ_MODE",
	ReqAuthCreateUser:                       "AUTH_CREATE_USER",
	ReqAuthUpdateUser:                       "AUTH_UPDATE_USER",
	ReqAuthDeleteUser:                       "AUTH_DELETE_USER",
	ReqAuthGetUser:                          "AUTH_GET_USER",
	ReqAuthListUser:                         "AUTH_LIST_USER",
	ReqAuthCreateACL:                        "AUTH_CREATE_ACL",
	ReqAuthUpdateACL:                        "AUTH_UPDATE_ACL",
	ReqAuthDeleteACL:                        "AUTH_DELETE_ACL",
	ReqAuthGetACL:                           "AUTH_GET_ACL",
	ReqAuthListACL:                          "AUTH_LIST_ACL",
	ReqPopMessage:                           "POP_MESSAGE",
	ReqAckMessage:                           "ACK_MESSAGE",
	ReqPeekMessage:                          "PEEK_MESSAGE",
	ReqChangeMessageInvisibleTime:           "CHANGE_MESSAGE_INVISIBLETIME",
	ReqNotification:                         "NOTIFICATION",
	ReqPollingInfo:                          "POLLING_INFO",
	ReqPopRollback:                          "POP_ROLLBACK",
	ReqBatchAckMessage:                      "BATCH_ACK_MESSAGE",
}

var responseNames = map[int32]string{
	RespRPCTimeOut:                 "RPC_TIME_OUT",
	RespRPCSendToChannelFailed:     "RPC_SEND_TO_CHANNEL_FAILED",
	RespRPCAddrIsNull:              "RPC_ADDR_IS_NULL",
	RespRPCUnknown:                 "RPC_UNKNOWN",
	RespSuccess:                    "SUCCESS",
	RespSystemError:                "SYSTEM_ERROR",
	RespSystemBusy:                 "SYSTEM_BUSY",
	RespRequestCodeNotSupported:    "REQUEST_CODE_NOT_SUPPORTED",
	RespTransactionFailed:          "TRANSACTION_FAILED",
	RespFlushDiskTimeout:           "FLUSH_DISK_TIMEOUT",
	RespSlaveNotAvailable:          "SLAVE_NOT_AVAILABLE",
	RespFlushSlaveTimeout:          "FLUSH_SLAVE_TIMEOUT",
	RespMessageIllegal:             "MESSAGE_ILLEGAL",
	RespServiceNotAvailable:        "SERVICE_NOT_AVAILABLE",
	RespVersionNotSupported:        "VERSION_NOT_SUPPORTED",
	RespNoPermission:               "NO_PERMISSION",
	RespTopicNotExist:              "TOPIC_NOT_EXIST",
	RespTopicExistAlready:          "TOPIC_EXIST_ALREADY",
	RespPullNotFound:               "PULL_NOT_FOUND",
	RespPullRetryImmediately:       "PULL_RETRY_IMMEDIATELY",
	RespPullOffsetMoved:            "PULL_OFFSET_MOVED",
	RespQueryNotFound:              "QUERY_NOT_FOUND",
	RespSubscriptionParseFailed:    "SUBSCRIPTION_PARSE_FAILED",
	RespSubscriptionNotExist:       "SUBSCRIPTION_NOT_EXIST",
	RespSubscriptionNotLatest:      "SUBSCRIPTION_NOT_LATEST",
	RespSubscriptionGroupNotExist:  "SUBSCRIPTION_GROUP_NOT_EXIST",
	RespFilterDataNotExist:         "FILTER_DATA_NOT_EXIST",
	RespFilterDataNotLatest:        "FILTER_DATA_NOT_LATEST",
	RespInvalidParameter:           "INVALID_PARAMETER",
	RespTransactionShouldCommit:    "TRANSACTION_SHOULD_COMMIT",
	RespTransactionShouldRollback:  "TRANSACTION_SHOULD_ROLLBACK",
	RespTransactionStateUnknow:     "TRANSACTION_STATE_UNKNOW",
	RespTransactionStateGroupWrong: "TRANSACTION_STATE_GROUP_WRONG",
	RespNoBuyerID:                  "NO_BUYER_ID",
	RespNotInCurrentUnit:           "NOT_IN_CURRENT_UNIT",
	RespConsumerNotOnline:          "CONSUMER_NOT_ONLINE",
	RespConsumeMsgTimeout:          "CONSUME_MSG_TIMEOUT",
	RespNoMessage:                  "NO_MESSAGE",
	RespPollingFull:                "POLLING_FULL",
	RespPollingTimeout:             "POLLING_TIMEOUT",
	RespBrokerNotExist:             "BROKER_NOT_EXIST",
	RespBrokerDispatchNotComplete:  "BROKER_DISPATCH_NOT_COMPLETE",
	RespBroadcastConsumption:       "BROADCAST_CONSUMPTION",
	RespFlowControl:                "FLOW_CONTROL",
	RespNotLeaderForQueue:          "NOT_LEADER_FOR_QUEUE",
	RespIllegalOperation:           "ILLEGAL_OPERATION",
	RespGoAway:                     "GO_AWAY",
	RespUserNotExist:               "USER_NOT_EXIST",
	RespPolicyNotExist:             "POLICY_NOT_EXIST",
}
