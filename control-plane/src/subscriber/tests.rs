mod machine;
mod sockets;
