//! Builds the libraries unless that was done before, and prints their folder: a value of `TRAWL_CUDA_LIBRARIES`.

fn main() {
    println!("{}", trawl_test_driver::Driver::built().folder().display());
}
