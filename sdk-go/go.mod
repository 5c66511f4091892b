module github.com/fusionmq/fusionmq/sdk-go

go 1.26.0

require (
	github.com/fusionmq/fusionmq/notify v0.0.0
	github.com/klauspost/compress v1.20.4
	github.com/pierrec/lz4/v4 v4.1.33
	go.uber.org/goleak v1.3.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/fusionmq/fusionmq/metaq => ../metaq
	github.com/fusionmq/fusionmq/notify => ../notify
	github.com/fusionmq/fusionmq/socket => ../socket
	github.com/fusionmq/fusionmq/store => ../store
)
