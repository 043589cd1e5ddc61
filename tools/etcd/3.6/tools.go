// Names the package so that go.sum has what it needs. See tools/get-etcd.

//go:build tools

package tools

import _ "go.etcd.io/etcd/server/v3/etcdmain"
