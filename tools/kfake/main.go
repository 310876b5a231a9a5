// Command kfake is the broker of franz-go's own tests: one node that speaks Kafka's protocol, keeps
// its data in a folder, and answers requests with errors on demand. It shares no code with Apache
// Kafka, so what works on both follows the protocol.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fault is the body of POST /faults: which requests fail, with which error, and how many of them.
type fault struct {
	Keys  []int16 `json:"keys"`
	Code  int16   `json:"code"`
	Topic string  `json:"topic"`
	Count int     `json:"count"`
}

func main() {
	folder := flag.String("data", "", "the folder of the data")
	port := flag.Int("port", 0, "the port for clients")
	control := flag.Int("control", 0, "the port of POST /faults, and of GET /faults, which counts the failed requests")
	flag.Parse()
	cluster, err := kfake.NewCluster(
		kfake.Ports(*port),
		kfake.DataDir(*folder),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{
			"default.replication.factor": "1",
			"min.insync.replicas":        "1",
		}),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	)
	if err != nil {
		log.Fatal(err)
	}
	var faults []*kfake.FaultHandle
	var lock sync.Mutex
	http.HandleFunc("GET /faults", func(answer http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		hits := make([]int, len(faults))
		for at, each := range faults {
			hits[at] = each.Hits()
		}
		json.NewEncoder(answer).Encode(hits)
	})
	http.HandleFunc("POST /faults", func(answer http.ResponseWriter, request *http.Request) {
		var wanted fault
		if err := json.NewDecoder(request.Body).Decode(&wanted); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		keys := make([]kmsg.Key, len(wanted.Keys))
		for at, key := range wanted.Keys {
			keys[at] = kmsg.Key(key)
		}
		lock.Lock()
		defer lock.Unlock()
		faults = append(faults, cluster.Fault(kfake.Fault{
			Keys:  keys,
			Topic: wanted.Topic,
			Err:   kerr.TypedErrorForCode(wanted.Code),
			Count: wanted.Count,
		}))
		answer.WriteHeader(http.StatusNoContent)
	})
	go func() {
		log.Fatal(http.ListenAndServe(net.JoinHostPort("127.0.0.1", strconv.Itoa(*control)), nil))
	}()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
	cluster.Close()
}
