// Command stubs writes to a file the descriptors of what Python's examples
// call, the daemon's own API and Envoy's RPC, and prints the names of their
// .proto files: what protoc needs to generate code (make python-stubs).
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	ratelimitv1 "github.com/ratelimitd/ratelimitd/proto/ratelimit/v1"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: stubs FILE")
	}
	var set descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	add(&set, seen, ratelimitv1.File_ratelimit_v1_ratelimit_proto)
	add(&set, seen, rlsv3.File_envoy_service_ratelimit_v3_rls_proto)
	out, err := proto.Marshal(&set)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], out, 0o644); err != nil {
		log.Fatal(err)
	}
	for _, f := range set.GetFile() {
		if !strings.HasPrefix(f.GetName(), "google/protobuf/") { // which Python has
			fmt.Println(f.GetName())
		}
	}
}

// add adds a file after those that it imports, each once.
func add(set *descriptorpb.FileDescriptorSet, seen map[string]bool, f protoreflect.FileDescriptor) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		add(set, seen, f.Imports().Get(i).FileDescriptor)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
}
