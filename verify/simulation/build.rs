//! Makes the client's code take its clock, random numbers and connections from the simulation.

fn main() {
    println!("cargo:rustc-cfg=simulated");
    println!("cargo:rerun-if-changed=build.rs");
}
