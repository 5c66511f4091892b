module github.com/fusionmq/fusionmq/notify

go 1.26.0

require (
	github.com/fusionmq/fusionmq/socket v0.0.0
	github.com/fusionmq/fusionmq/store v0.0.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.2 // indirect
	github.com/bits-and-blooms/bloom/v3 v3.7.1 // indirect
	github.com/bytedance/gopkg v0.1.3 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
	github.com/cloudwego/netpoll v0.7.2 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace (
	github.com/fusionmq/fusionmq/socket => ../socket
	github.com/fusionmq/fusionmq/store => ../store
)
